"""The net of a job: planned from its list of layers, then built for a phase.

The plan, a list of nodes
    `plan` runs its steps: `unroll` over time steps, `partition` among workers, and `order`. `nodes`: what a plan is
    made of.
The net, made of a plan
    `neuralnet`: the class `NeuralNet`, and `make_net`, which builds one. `wiring`: makes and connects the layers.
    `memory`: what each layer needs.
    `params`, `gradients`, `copies`: weights, who has gradients, and sums over copies. `shares`, `mixing`: batches that
    are divided unequally or mixed. `fuse`: layers that compute what their neighbours would.
Beside the net
    `replay`: calls kernels again without the layers. `debug`: watches layers. `picture`: draws a net.
"""

from singa_dask.net.neuralnet import NeuralNet, make_net
from singa_dask.net.nodes import Node, NodeOutput
from singa_dask.net.params import whole_params
from singa_dask.net.plan import plan

__all__ = ["NeuralNet", "Node", "NodeOutput", "make_net", "plan", "whole_params"]
