"""FittedNet: a trained net as a value, which computes outputs in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import starmap
from typing import Any

import numpy as np

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.arrays import Array
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.learned import Learned
from singa_dask.jobs import Job
from singa_dask.runtime import missing_gpus
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.checkpoints.lookup import load_manifest, load_values
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored
from singa_dask.runtime.inference.job import classifier, inference_job, output_layer
from singa_dask.runtime.inference.net import load_modules
from singa_dask.runtime.inference.trained_net import Trained, TrainedNet
from singa_dask.runtime.planning.devices import device_of_part
from singa_dask.runtime.planning.nets import find_ops

MAX_BATCHES, MAX_VALUES = 10, 1 << 20
"""Batches of flat records that are computed together, and their values."""


class FittedNet:
    """The net of a job with the values of a run of it, which are pickled with it. Threads may share it.

    Parameters
    ----------
    job : JobConf
    sources : sequence of Source
        The user's own modules.
    has_classes : bool
        Whether the outputs are probabilities of classes.
    values : mapping of str to Stored
        Values of its params.
    learned : Learned, optional
        Of the training data, such as the scalings of input layers that standardise.
    is_shared : bool
        Whether ``values`` have the shapes and the type of the params. The net computes with these arrays, and sees when
        they change.
    """

    def __init__(
        self,
        job: JobConf,
        sources: Sequence[modules.Source],
        has_classes: bool,
        values: Mapping[str, Stored],
        learned: Learned | None = None,
        is_shared: bool = False,
    ) -> None:
        self._job, self._sources, self._has_classes = job, sources, has_classes
        self._values, self.learned, self._is_shared = values, learned, is_shared
        self._lock = threading.Lock()

    @classmethod
    def of(cls, job: Job, url: str, has_classes: bool) -> FittedNet:
        """Return the net of a run directory, which is not needed any more afterwards; see the class."""
        values = {name: Stored(np.array(each.values), each.version) for name, each in load_values(url).items()}
        sources = modules.read(job.conf.modules)
        return cls(job.conf, sources, has_classes, values, Learned.of(load_manifest(url)))

    @property
    def values(self) -> dict[str, Array]:
        """Values of its params by name."""
        return {name: each.values for name, each in self._values.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._sources, self._has_classes, dict(self._values), self.learned, self._is_shared
        return _read, (self._job.model_dump_json(), *state)

    def outputs(self, x: Array) -> Array:
        """Return the probabilities of classes for records (N, ...), or else the predicted values: (N, outputs)."""
        with self._lock:
            found = list(self._outputs(x))
        return np.concatenate(found).reshape(len(x), -1)

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
        """The net, and the layer with its outputs."""
        load_modules(self._sources)
        job = self._job
        if missing_gpus(job):
            job = job.model_copy(update={"gpu": [], "ops": "auto"})
        read = inference_job(job, Phase.TEST, in_order=True, exposed=True)
        layer = (classifier if self._has_classes else output_layer)(job, Phase.TEST)
        ops = find_ops(read.job, device_of_part(read.job, 0))
        shared = {name: (each.values, each.version) for name, each in self._values.items()} if self._is_shared else {}
        trained = Trained(InitialValues.of(self._values, self.learned), ops, shared)
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
