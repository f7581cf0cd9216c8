"""BridgeSrc and BridgeDst: the ends of an edge between layers on two workers of a group."""

from __future__ import annotations

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers.base import LAYERS
from singa_dask.layers.feature import RecordIds, on_host
from singa_dask.layers.forwarding import Forwarding
from singa_dask.layers.traits import Consumed
from singa_dask.ops.contract import Array

IN_FLIGHT = 2
"""Maximum number of batches in flight on a bridge, if no gradient confirms that a batch was read."""

CARRIED: dict[str, Consumed] = {
    "labels": "labels",
    "ids": "ids",
    "epochs": "ids",
    "partner_labels": "labels",
    "mix_weights": "labels",
}
"""Columns of `RecordIds` that are sent, and their names in `Feature.consumed_as`."""

SIZES = {"labels": np.dtype(np.int32).itemsize, "ids": 2 * np.dtype(np.int64).itemsize}
STREAM_START = "stream start"


class Bridge(Forwarding):
    """Base of the two ends of a bridge.

    Attributes
    ----------
    takes_gradient : bool
        Whether the layer that reads this end writes a gradient.
    """

    takes_gradient = False

    def setup(self) -> None:
        source = self.sources[0]
        how = {"requires_grad": source.requires_grad, "own_data": False, "own_grad": self.takes_gradient}
        self.add_output(source.shape, dtype=source.dtype, **how).span = source.span

    def key(self, what: str) -> str:
        """Return the key of a message over this bridge; ``what`` names its content."""
        return f"{int(self.context.phase)} {what} {self.site.channel}"

    def arrived(self, phase: Phase) -> bool:
        """Return whether this end has received all that it needs, and can run without waiting."""
        raise NotImplementedError

    def plain(self, values: Array) -> Array:
        """Return an array as contiguous host memory; images (N, C, H, W) become (N, H, W, C)."""
        ordered = values.transpose(0, 2, 3, 1) if values.ndim == 4 else values
        return np.ascontiguousarray(self.ops.to_host(ordered))


@LAYERS.register(hidden=True)
class BridgeSrc(Bridge):
    """Send the data of the source to the other end, and receive the gradient of this data."""

    n_sent = 0

    def bytes_per_step(self) -> tuple[int, int]:
        """Return how many bytes one step sends to the other end, and how many bytes of gradients it receives."""
        feature, (n_rows, *_) = self.features[0], self.features[0].shape
        n_bytes = n_rows * feature.size * feature.dtype.itemsize
        n_more = n_rows * sum(SIZES.get(name, 0) for name in feature.consumed_as)
        return n_bytes * ("data" in feature.consumed_as) + n_more, n_bytes * feature.requires_grad

    def forward(self, phase: Phase) -> None:
        source, sent = self.sources[0], {}
        if "data" in self.features[0].consumed_as:
            sent["data"] = self.plain(source.data)
        wanted = [name for name, read in CARRIED.items() if read in self.features[0].consumed_as]
        sent |= {name: values for name in wanted if (values := getattr(source.records, name)) is not None}
        if self.context.stream_start:
            sent[STREAM_START] = np.ones(1, np.int32)
        if not self.features[0].requires_grad:
            # copy the values: without gradients, nothing confirms that the other end has read them
            sent = {name: np.array(values) for name, values in sent.items()}
            if self.n_sent >= IN_FLIGHT:
                self.context.bridges.receive(self.key("taken"))
            self.n_sent += 1
        self.context.bridges.send(self.site.peer, self.key("data"), list(sent.values()), list(sent))

    def arrived(self, phase: Phase) -> bool:
        if phase & Phase.BACKWARD:
            return self.context.bridges.has(self.key("grad"))
        return self.features[0].requires_grad or self.n_sent < IN_FLIGHT or self.context.bridges.has(self.key("taken"))

    def backward(self, phase: Phase) -> None:
        self.ops.copy(_images(self.context.bridges.receive(self.key("grad"))["grad"]), out=self.sources[0].output_grad)


@LAYERS.register(hidden=True)
class BridgeDst(Bridge):
    """Output the data that the other end has sent, and send the gradient back."""

    takes_gradient = True

    def arrived(self, phase: Phase) -> bool:
        return bool(phase & Phase.BACKWARD) or self.context.bridges.has(self.key("data"))

    def forward(self, phase: Phase) -> None:
        feature, received = self.features[0], self.context.bridges.receive(self.key("data"))
        if "data" in received:
            data = _images(received["data"])
            feature.data = data if on_host(feature) else self.ops.from_host(data)
        if not feature.requires_grad:
            self.context.bridges.send(self.site.peer, self.key("taken"), (), ())
        feature.records = RecordIds(**{name: received.get(name) for name in CARRIED}).stored(self.ops)
        self.context.stream_start |= STREAM_START in received

    def backward(self, phase: Phase) -> None:
        grad = self.plain(self.features[0].output_grad)
        self.context.bridges.send(self.site.peer, self.key("grad"), [grad], ["grad"])


def _images(values: Array) -> Array:
    """Turn a result of `Bridge.plain` back into images (N, C, H, W)."""
    return values.transpose(0, 3, 1, 2) if values.ndim == 4 else values
