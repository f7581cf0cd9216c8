"""FittedNet: a trained net as a value, which computes outputs in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import starmap
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.learned import Learned
from singa_dask.errors import NumericError
from singa_dask.jobs import Job
from singa_dask.layers.records import StoreConf
from singa_dask.ops.contract import Ops
from singa_dask.runtime import missing_gpus
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.checkpoints.lookup import load_manifest, load_values
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored
from singa_dask.runtime.inference.job import classifier, inference_job, output_layer
from singa_dask.runtime.inference.net import load_modules
from singa_dask.runtime.inference.trained_net import Trained, TrainedNet
from singa_dask.runtime.planning.devices import device_of_part
from singa_dask.runtime.planning.nets import find_ops
from singa_dask.runtime.planning.resources import ThreadPools

__all__ = ["FittedNet"]

Array = npt.NDArray[Any]

MAX_BATCHES, MAX_VALUES = 10, 1 << 20
"""Batches of flat records that are computed together, and their values."""
KERNELS = {
    "ReLU": "relu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "SoftmaxLoss": "softmax",
    "SigmoidCrossEntropyLoss": "sigmoid",
}
"""Layers of the default net -> their kernels."""


class FittedNet:
    """The net of a job with the values of a run of it, which are pickled with it. Threads may share it.

    Parameters
    ----------
    job : JobConf
    sources : sequence of Source
        The user's own modules.
    is_default : bool
        Whether it is a `default_job`: its kernels are called without a net, which takes longer to build than to
        compute. It sees when ``values`` change.
    has_classes : bool
        Whether the outputs are probabilities of classes.
    values : mapping of str to Stored
        Values of its params.
    learned : Learned, optional
        Of the training data, such as the scalings of input layers that standardise.
    """

    def __init__(
        self,
        job: JobConf,
        sources: Sequence[modules.Source],
        is_default: bool,
        has_classes: bool,
        values: Mapping[str, Stored],
        learned: Learned | None = None,
    ) -> None:
        self._job, self._sources, self._is_default, self._has_classes = job, sources, is_default, has_classes
        self._values, self.learned = values, learned
        self._lock = threading.Lock()

    @classmethod
    def of(cls, job: Job, url: str, is_default: bool, has_classes: bool) -> FittedNet:
        """Return the net of a run directory, which is not needed any more afterwards; see the class."""
        values = {name: Stored(np.array(each.values), each.version) for name, each in load_values(url).items()}
        sources = modules.read(job.conf.modules)
        return cls(job.conf, sources, is_default, has_classes, values, Learned.of(load_manifest(url)))

    @property
    def values(self) -> dict[str, Array]:
        """Values of its params by name."""
        return {name: each.values for name, each in self._values.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._sources, self._is_default, self._has_classes, dict(self._values), self.learned
        return _read, (self._job.model_dump_json(), *state)

    def outputs(self, x: Array) -> Array:
        """Return the probabilities of classes for records (N, ...), or else the predicted values: (N, outputs)."""
        with self._lock:
            found = list(self._default_outputs(x) if self._is_default else self._outputs(x))
        return np.concatenate(found).reshape(len(x), -1)

    def _default_outputs(self, x: Array) -> Iterator[Array]:
        ops, pools, values, layers = *self._kernels, self.values, self._job.neuralnet.layer
        size = sum(layers[0].block(StoreConf).batchsize)
        with pools.limit(self._job.threads) if pools else nullcontext():
            for rows in _batches(len(x), size, x.shape[1]):
                y = np.ascontiguousarray(x[rows], np.float32)
                for layer in layers:
                    if layer.type == "InnerProduct":
                        weight, bias = (values[f"{layer.name}.{kind}"] for kind in ("weight", "bias"))
                        source, y = y, np.empty((len(y), len(weight)), np.float32)
                        ops.linear(source, weight, bias, out=y)
                    elif layer.type in KERNELS:
                        source, y = y, np.empty_like(y)
                        getattr(ops, KERNELS[layer.type])(source, out=y)
                yield y

    @cached_property
    def _kernels(self) -> tuple[Ops, ThreadPools | None]:
        """Kernels of the default net, and the libraries whose threads are limited."""
        for name, each in self.values.items():
            if not np.isfinite(each).all():
                raise NumericError(f"param {name!r} is not finite. Expected finite values: take a lower learning rate.")
        return find_ops(self._job, self._job.ops), ThreadPools() if self._job.threads else None

    def _outputs(self, x: Array) -> Iterator[Array]:
        field = "pixel" if x.dtype == np.uint8 else "data"
        net, layer = self._net
        is_flat = x.ndim == 2 and not net.sequential
        batches = _batches(len(x), net.batchsize, x.shape[1]) if is_flat else starmap(slice, net.batches(len(x)))
        for rows in batches:
            records = {name: {field: x[rows]} for name in net.inputs}
            arrays, _ = net.compute(records, rows.stop - rows.start, rows.start)
            yield arrays[layer]["data"]

    @cached_property
    def _net(self) -> tuple[TrainedNet, str]:
        """The net of a user's job, and the layer with its outputs."""
        load_modules(self._sources)
        job = self._job
        if missing_gpus(job):
            job = job.model_copy(update={"gpu": [], "ops": "auto"})
        read = inference_job(job, Phase.TEST, in_order=True, exposed=True)
        layer = (classifier if self._has_classes else output_layer)(job, Phase.TEST)
        ops = find_ops(read.job, device_of_part(read.job, 0))
        trained = Trained(InitialValues.of(self._values, self.learned), ops)
        return TrainedNet(read.job, read.phase, trained, (layer,)), layer


def _batches(n: int, size: int, n_features: int) -> Iterator[slice]:
    """Yield the flat records of each batch: of several, as what is around a batch takes longer than a small net."""
    size *= min(MAX_BATCHES, max(1, MAX_VALUES // (size * n_features)))
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def _read(text: str, *state: Any) -> FittedNet:
    """Return a net with its job as JSON."""
    sources = state[0]
    load_modules(sources)
    return FittedNet(JobConf.from_json(text, REGISTRIES), *state)
