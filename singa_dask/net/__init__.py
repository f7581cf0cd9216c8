"""The net of a job: planned from its list of layers, then built for a phase."""

from singa_dask.net.neuralnet import NeuralNet, make_net
from singa_dask.net.plan import plan
from singa_dask.net.wiring import Node, NodeOutput, whole_params

__all__ = ["NeuralNet", "Node", "NodeOutput", "make_net", "plan", "whole_params"]
