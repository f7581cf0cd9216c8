"""The net of a job: planned from its list of layers, then built for a phase."""

from __future__ import annotations

from singa_dask.net.builder import NetBuilder
from singa_dask.net.neuralnet import NeuralNet
from singa_dask.net.node import Node, Output
from singa_dask.net.params import whole_params
from singa_dask.net.plan import plan

__all__ = ["NetBuilder", "NeuralNet", "Node", "Output", "plan", "whole_params"]
