"""The net of a job: planned from its list of layers, then built for a phase."""

from __future__ import annotations

from singa_dask.net.neuralnet import NeuralNet
from singa_dask.net.plan import Node, plan

__all__ = ["NeuralNet", "Node", "plan"]
