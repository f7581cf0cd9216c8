"""Output layers that sort or count scores. They have no gradients."""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Speed, Traits


class ArgSortConf(Conf):
    """``argsort_conf`` (SINGA's ArgSortProto)."""

    topk: Size = 1
    """Number of columns to output for each record, highest score first."""


@LAYERS.register()
class ArgSort(Layer):
    """The columns of the ``argsort_conf.topk`` highest scores of each row, best first: (N, topk) floats.

    If scores are equal, the higher column comes first.
    """

    options_class = ArgSortConf
    traits = Traits(role="output")
    speed = Speed(time_foldable=True, capturable=True)

    def setup(self) -> None:
        self.topk, width = self.options.topk, self.sources[0].size
        if self.topk > width:
            message = f"expected at most {width}, the values of a record, got {self.topk}."
            raise ConfigError(Problem(("argsort_conf", "topk"), message))
        self.add_output((self.sources[0].shape[0], self.topk), requires_grad=False, dtype=self.context.param_dtype)

    def forward(self, phase: Phase) -> None:
        self.ops.top(self.rows(), self.topk, out=self.features[0].data)


@LAYERS.register()
class Accuracy(ArgSort):
    """Add the fraction of rows whose label is among the ``topk`` highest scores to the metric "accuracy".

    The first source has the scores, the second the labels. The output is the same as that of ArgSort.
    """

    traits = ArgSort.traits.replace(n_sources=(2, 2), consumes=("data", "labels"), metrics=("accuracy",))
    speed = ArgSort.speed

    def prepare(self, phase: Phase) -> None:
        self.labels(1, self.sources[0].size)

    def forward(self, phase: Phase) -> None:
        super().forward(phase)
        scores = self.rows()
        labels = self.labels(1)
        self.add_metric("accuracy", self.ops.count_in_top(scores, labels, self.topk), n=len(scores))
