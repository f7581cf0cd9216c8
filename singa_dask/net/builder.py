"""NetBuilder: from a job to a finished `NeuralNet`."""

from __future__ import annotations

from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError
from singa_dask.layers import Context
from singa_dask.net.flow import check_backward, find_gradients, pass_on_reads
from singa_dask.net.neuralnet import NeuralNet
from singa_dask.net.params import Params
from singa_dask.net.plan import plan
from singa_dask.net.shares import check_shares, find_shares
from singa_dask.net.wiring import Wiring
from singa_dask.ops.contract import Ops

__all__ = ["NetBuilder"]


class NetBuilder:
    """Builds the net of one phase: shapes and params, no memory, no records.

    Parameters
    ----------
    job : JobConf
    context : Context
        Phase, place in the group, seed, precision. ``shares`` is set here.
    ops : Ops
        Kernels that compute the net.
    share_from : NeuralNet, optional
        Net whose params of the same names this one uses: the training net, for a test or validation net.
    """

    def __init__(self, job: JobConf, context: Context, ops: Ops, share_from: NeuralNet | None = None) -> None:
        self.job = job
        self.context = context
        self.ops = ops
        self.share_from = share_from

    def build(self) -> NeuralNet:
        """Return the net.

        Raises
        ------
        ConfigError
            Every mistake at once, with paths from the top of the job.
        """
        conf, context = self.job.neuralnet, self.context
        nodes = plan(conf, context.phase, context.n_workers)
        context.shares = find_shares(conf, context.phase, context.n_workers)
        wiring = Wiring(nodes, context, self.ops)
        problems = list(wiring.problems)
        problems += check_shares(nodes, wiring.by_name) if context.shares else []
        pass_on_reads(wiring.all_layers)
        params = Params(nodes, wiring.all_layers, wiring.is_here, context.gate)
        problems += params.index_names()
        problems += params.share_with(self.share_from.shared_params) if self.share_from else params.resolve_sharing()
        if problems:
            raise ConfigError(problems)
        find_gradients(wiring.all_layers, context.phase)
        if problems := list(dict.fromkeys(check_backward(nodes, wiring.by_name))):
            raise ConfigError(problems)
        params.assign_owners()
        return NeuralNet(context, self.ops, wiring, params)
