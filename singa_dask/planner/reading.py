"""Measure the cost of reading a job's records, with the loaders of its own input layers."""

from __future__ import annotations

import logging
import time

from singa_dask.conf import JobConf, Phase
from singa_dask.data.loading import Loader
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs import StoreInput
from singa_dask.net import NeuralNet
from singa_dask.runtime.planning.nets import build_net, with_stores

logger = logging.getLogger(__name__)

WARM_UP_S, SECONDS = 0.5, 0.25
"""Seconds of reading before and during the measurement; the former end after one pass over the records."""
N_AHEAD = 2
"""Batches that a simulated worker reads ahead at most. More would only delay the steady state of a long job."""


def rows_read(net: NeuralNet) -> int:
    """Return the number of records that a worker reads for a batch."""
    return max((layer.features[0].shape[0] for layer in net.inputs if isinstance(layer, StoreInput)), default=0)


def with_any_scaling(job: JobConf) -> JobConf:
    """Return the job with made-up means and deviations instead of standardisation.

    Real means and deviations would take a pass over all records. Applying them takes the same time as applying made-up
    ones.
    """
    # these values scale the records of any column close to 0
    made_up = {"standardise": False, "mean_value": [0.0], "std_value": [1e6]}
    return with_stores(job, lambda store: made_up if store.standardise else {})


def measure_reading(job: JobConf, warns: bool = True) -> tuple[float, float]:
    """Return the cost of reading one more record in a batch: CPU seconds, and bytes of blocks.

    For records that stay in memory it is the cost after the first pass. Stores that cannot be opened on this machine
    count as free; with ``warns``, a warning names them.
    """
    totals = [0.0, 0.0]
    for layer in build_net(with_any_scaling(job), Phase.TRAIN).inputs:
        if isinstance(layer, StoreInput):
            layer.plan.warns = False
            try:
                with layer.open_checked() as store, layer.make_loader(store) as loader:
                    loader.prefetch = False  # without this, the loader would read further batches that are not counted
                    _read(loader, WARM_UP_S, store.count)
                    cpu_s, n_bytes = time.process_time(), loader.reader.bytes_read
                    n = _read(loader, SECONDS)
                    totals[0] += (time.process_time() - cpu_s) / n
                    totals[1] += (loader.reader.bytes_read - n_bytes) / n
            except (DataError, ConfigError) as error:
                level = logging.WARNING if warns else logging.DEBUG
                logger.log(level, "layer %s: reading its records is not in the plan: %s", layer.name, error)
    return totals[0], totals[1]


def _read(loader: Loader, seconds: float, n_records: float = float("inf")) -> int:
    """Read buffers of batches for some seconds, or up to some records; return the number of records."""
    started, n = time.perf_counter(), 0
    while not n or (n < n_records and time.perf_counter() - started < seconds):
        n += sum(len(loader.next().ids) for _ in range(loader.budget.buffer_steps))
    return n
