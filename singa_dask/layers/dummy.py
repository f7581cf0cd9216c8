"""Dummy: a layer that stands in for any other in a test."""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Many, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Traits


class DummyConf(Conf):
    """``dummy_conf`` (SINGA's DummyProto)."""

    input: bool = False
    """Whether the layer outputs random data of ``shape``."""
    output: bool = False
    """Whether the layer computes random gradients of its source."""
    shape: Many[Size] = Field(default=[])
    """Shape of the data, batch first."""


@LAYERS.register()
class Dummy(Layer):
    """Stand in for any other layer in tests.

    With ``input`` the layer draws its data from U[0, 1); with ``output`` it draws the gradients of its source.
    Otherwise it copies data and gradients. ``dummy_conf.shape`` is the shape of the whole group's batch.
    """

    options_class = DummyConf
    traits = Traits(n_sources=(0, 1))

    def setup(self) -> None:
        self.traits = self.traits.replace(role="loss" if self.options.output else "")
        if bool(self.sources) == self.options.input:
            message = (
                "a Dummy that is an input takes no source layer."
                if self.sources
                else "a Dummy that is not an input takes one source layer."
            )
            raise ConfigError(Problem(("srclayers",), message))
        self.add_output(self.sources[0].shape if self.sources else self.own_shape(self.options))

    def own_shape(self, block: DummyConf) -> tuple[int, ...]:
        """Return the shape of this worker's part of the batch."""
        n_workers = self.site.batch_shard.count
        if not block.shape or block.shape[0] % n_workers:
            message = f"{list(block.shape)} does not start with a batch that {n_workers} workers can share equally."
            raise ConfigError(Problem(("dummy_conf", "shape"), message))
        return (block.shape[0] // n_workers, *block.shape[1:])

    def forward(self, phase: Phase) -> None:
        data = self.features[0].data
        if self.sources:
            self.ops.copy(self.sources[0].data, out=data)
        else:
            self.ops.uniform(self.random_key("data"), out=data, first_row=self.first_row(len(data)))

    def backward(self, phase: Phase) -> None:
        grad = self.sources[0].grad if self.sources else None
        if grad is None:
            return
        if self.traits.role == "loss":
            self.ops.uniform(self.random_key("grad"), out=grad, first_row=self.first_row(len(grad)))
        else:
            self.ops.copy(self.features[0].output_grad, out=grad)
