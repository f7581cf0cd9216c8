"""Measure the cost of reading a job's records, with the loaders of the job's own input layers."""

from __future__ import annotations

import logging
import time

from singa_dask.conf import JobConf, Phase
from singa_dask.data.loading import Loader
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs import StoreInput
from singa_dask.net import NeuralNet
from singa_dask.runtime.planning.job_stores import with_stores
from singa_dask.runtime.planning.nets import build_net

logger = logging.getLogger(__name__)

WARM_UP_S, SECONDS = 0.5, 0.25
"""Seconds of reading before the measurement (at most one pass over the records); seconds of the measurement."""
N_AHEAD = 2
"""Maximum number of batches that a simulated worker reads ahead. With more, the simulation would only take longer to
reach the steady state of a long job."""


def rows_read(net: NeuralNet) -> int:
    """Return the number of records that a worker reads for a batch."""
    return max((layer.features[0].shape[0] for layer in net.inputs if isinstance(layer, StoreInput)), default=0)


def with_any_scaling(job: JobConf) -> JobConf:
    """Replace standardisation in a job by fixed means and deviations.

    Computing real means and deviations takes a pass over all records. Applying fixed values takes as long as applying
    real values.
    """
    # with these values, the records of any column are scaled to values close to 0
    made_up = {"standardise": False, "mean_value": [0.0], "std_value": [1e6]}
    return with_stores(job, lambda store: made_up if store.standardise else {})


def measure_reading(job: JobConf, warns: bool = True) -> tuple[float, float]:
    """Return the cost of reading a record of a batch: CPU seconds, and bytes of blocks.

    If records stay in memory after the first pass, later passes are measured. A store that cannot be opened on this
    machine counts as 0; with ``warns``, a warning names the layer.
    """
    totals = [0.0, 0.0]
    for layer in build_net(with_any_scaling(job), Phase.TRAIN).inputs:
        if isinstance(layer, StoreInput):
            layer.plan.warns = False
            try:
                with layer.source.open_checked() as store, layer.make_loader(store) as loader:
                    loader.prefetch = False  # otherwise the loader would also read batches that are not counted
                    _read(loader, WARM_UP_S, store.count)
                    cpu_s, n_bytes = time.process_time(), loader.reader.bytes_read
                    n = _read(loader, SECONDS)
                    totals[0] += (time.process_time() - cpu_s) / n
                    totals[1] += (loader.reader.bytes_read - n_bytes) / n
            except (DataError, ConfigError) as error:
                level = logging.WARNING if warns else logging.DEBUG
                logger.log(level, "layer %s: the plan does not count reading its records: %s", layer.name, error)
    return totals[0], totals[1]


def _read(loader: Loader, seconds: float, n_records: float = float("inf")) -> int:
    """Read buffers of batches for ``seconds``, or until ``n_records`` were read.

    Return the number of records read.
    """
    started, n = time.perf_counter(), 0
    while not n or (n < n_records and time.perf_counter() - started < seconds):
        n += sum(len(loader.next().ids) for _ in range(loader.budget.buffer_steps))
    return n
