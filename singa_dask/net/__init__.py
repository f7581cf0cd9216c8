"""The net of a job: planned from its list of layers, then built for a phase.

The plan, a list of nodes
    `plan` runs its steps: `unroll` over time steps, `partition` among workers, and `order`. `nodes`: the elements of
    a plan.
The net, made of a plan
    `neuralnet`: the class `NeuralNet`, and `make_net`, which builds one. `wiring`: makes and connects the layers.
    `memory`: allocates what each layer needs. `params`: weights, and how layers share them. `gradients`: which layers
    have gradients. `copies`: sums gradients over copies of a layer. `shares`, `mixing`: batches that are divided
    unequally or mixed. `fuse`: layers that do work of their neighbours.
Beside the net
    `replay`: calls kernels again without the layers' code. `debug`: checks what layers write. `picture`: draws a net.
"""

from singa_dask.net.neuralnet import NeuralNet, make_net
from singa_dask.net.nodes import Node, NodeOutput
from singa_dask.net.params import whole_params
from singa_dask.net.plan import plan

__all__ = ["NeuralNet", "Node", "NodeOutput", "make_net", "plan", "whole_params"]
