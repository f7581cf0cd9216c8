"""The net of a job: planned from its list of layers, then built for one phase.

The plan, a list of nodes
    `plan` runs all steps of planning: `unroll` over time steps, `partition` among workers, and `order`. `nodes` has the
    elements of a plan.
The net, built from a plan
    `neuralnet`: the class `NeuralNet`, and `make_net`, which builds one. `wiring`: makes and connects the layers.
    `memory`: allocates the memory of layers. `params`: weights, and how layers share them. `gradients`: which layers
    have gradients. `copies`: sums gradients over the copies of a layer. `shares` and `mixing`: batches that are divided
    unequally or mixed. `fuse`: layers that do work of their neighbours.
Around the net
    `replay`: calls kernels again without the code of layers. `debug`: checks what layers write. `picture`: draws a net.
"""

from singa_dask.net.neuralnet import NeuralNet, make_net
from singa_dask.net.nodes import Node, NodeOutput
from singa_dask.net.params import whole_params
from singa_dask.net.plan import plan

__all__ = ["NeuralNet", "Node", "NodeOutput", "make_net", "plan", "whole_params"]
