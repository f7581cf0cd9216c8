"""FittedNet: a trained net as a value, which computes outputs in this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.jobs import Job
from singa_dask.runtime import missing_gpus
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored
from singa_dask.runtime.inference.job import classifier, inference_job, output_layer
from singa_dask.runtime.inference.net import SharedValues, load_modules
from singa_dask.runtime.inference.trained_net import Trained, TrainedNet
from singa_dask.runtime.planning.devices import device_of_part
from singa_dask.runtime.planning.nets import find_ops

__all__ = ["FittedNet"]

Array = npt.NDArray[Any]

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
        Whether its outputs are probabilities of classes.
    values : mapping of str to Stored
        Values of its params.
    shared : bool
        Whether their arrays are those of the net, on the CPU: it sees when they change.
    """

    def __init__(
        self,
        job: JobConf,
        sources: Sequence[modules.Source],
        has_classes: bool,
        values: Mapping[str, Stored],
        shared: bool = False,
    ) -> None:
        self._job, self._sources, self._has_classes, self._values = job, sources, has_classes, values
        self._shared: SharedValues = {name: (each.values, each.version) for name, each in values.items() if shared}
        self._lock = threading.Lock()
        self._net: TrainedNet | None = None
        self._layer = ""

    @classmethod
    def of(cls, job: Job, url: str, has_classes: bool) -> FittedNet:
        """Return the net of a run.

        Parameters
        ----------
        job : Job
        url : str
            Run directory; it is not needed any more afterwards.
        has_classes : bool
        """
        values = {name: Stored(np.array(each.values), each.version) for name, each in load_values(url).items()}
        return cls(job.conf, modules.read(job.conf.modules), has_classes, values)

    @property
    def values(self) -> dict[str, Array]:
        """Values of its params by name."""
        return {name: each.values for name, each in self._values.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (self._job.model_dump_json(), self._sources, self._has_classes, dict(self._values))

    def outputs(self, x: Array) -> Array:
        """Return the probabilities of classes for records (N, ...), or else the predicted values: (N, outputs)."""
        field = "pixel" if x.dtype == np.uint8 else "data"
        with self._lock:
            net = self._net = self._net or self._load()
            found = []
            rows = net.batchsize
            if x.ndim == 2 and not net.sequential:
                # what is around a batch takes longer than a small net
                rows *= min(MAX_BATCHES, max(1, MAX_VALUES // (rows * x.shape[1])))
            batches = [(first, min(first + rows, len(x))) for first in range(0, len(x), rows)]
            for first, stop in net.batches(len(x)) if net.sequential else batches:
                records = {name: {field: x[first:stop]} for name in net.inputs}
                arrays, _ = net.compute(records, stop - first, first)
                found.append(arrays[self._layer]["data"])
        return np.concatenate(found).reshape(len(x), -1)

    def _load(self) -> TrainedNet:
        load_modules(self._sources)
        job = self._job
        if missing_gpus(job):
            job = job.model_copy(update={"gpu": [], "ops": "auto"})
        read = inference_job(job, Phase.TEST, in_order=True, exposed=True)
        self._layer = (classifier if self._has_classes else output_layer)(job, Phase.TEST)
        ops = find_ops(read.job, device_of_part(read.job, 0))
        return TrainedNet(
            read.job, read.phase, Trained(InitialValues.of(self._values), ops, self._shared), (self._layer,)
        )


def _read(text: str, *state: Any) -> FittedNet:
    """Return a net with its job as JSON."""
    sources = state[0]
    load_modules(sources)
    return FittedNet(JobConf.from_json(text, REGISTRIES), *state)
