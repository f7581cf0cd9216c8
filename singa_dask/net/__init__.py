"""The net of a job: planned from the job's list of layers, then built for one phase.

The plan, a list of nodes
    `plan`: runs all steps of planning. `unroll`: creates a node for each time step. `partition`: divides layers among
    workers. `order`: sorts nodes. `nodes`: the elements of a plan.
The net, built from a plan
    `neuralnet`: the class `NeuralNet`, and `make_net`, which builds one. `wiring`: creates and connects the layers.
    `memory`: allocates the memory of layers. `params`: weights, and how layers share them. `gradients`: decides which
    layers have gradients. `copies`: sums gradients over the copies of a layer. `proportions`: divides batches
    unequally among workers. `mixing`: checks which layers can read mixed records. `fuse`: makes a layer do the work
    of its neighbour in one kernel.
Tools for a net
    `replay`: calls kernels again without the code of layers. `debug`: checks what layers write. `picture`: draws a net.
"""

from singa_dask.net.neuralnet import NeuralNet, make_net
from singa_dask.net.nodes import Node, NodeOutput
from singa_dask.net.params import whole_params
from singa_dask.net.plan import plan

__all__ = ["NeuralNet", "Node", "NodeOutput", "make_net", "plan", "whole_params"]
