"""The net of a job: planned from its list of layers, then built for a phase."""

from singa_dask.net.neuralnet import NeuralNet, make_net
from singa_dask.net.nodes import Node, NodeOutput
from singa_dask.net.params import whole_params
from singa_dask.net.plan import plan

__all__ = ["NeuralNet", "Node", "NodeOutput", "make_net", "plan", "whole_params"]
