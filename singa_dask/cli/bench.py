"""Benchmark of a loader against copying the same records in memory, in the same run.

A batch counts once its values are in the reader's own memory: a batch that is a view of the file is copied, just as
in memory each batch is copied once to the same buffer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import Batch, Loader, Sampler, Store
from singa_dask.data.order.sampler import Shuffle
from singa_dask.errors import DataError
from singa_dask.ops import get_ops

__all__ = ["EPOCHS", "Rate", "measure", "values_of"]

# the second one begins inside a block
EPOCHS = 2
MAX_BYTES = 1 << 30
SCALE = 255.0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Rate:
    """Records per second of one kind of batches: in memory, by the loader, and their ratio."""

    batches: str
    memory: float
    loader: float
    share: float
    record_bytes: int


def values_of(store: Store) -> str:
    """Return the name of what a net reads, or its parser."""
    known = ("data", "pixel", *(name for name in store.schema if name != "label"), "label")
    return next(name for name in known if name in store.schema)


def measure(store: Store, batch_size: int = 256, shuffle: Shuffle = "none", rounds: int = 3) -> list[Rate]:
    """Measure batches as they are stored, and scaled to float32.

    Parameters
    ----------
    store : Store
    batch_size : int
    shuffle : {"none", "block", "full"}
    rounds : int
        Memory and loader take turns; the medians are returned.

    Raises
    ------
    DataError
        There are fewer records than one batch, or more than 1 GiB.
    """
    field = store.schema[values_of(store)]
    if store.count < batch_size:
        raise DataError(f"{store.url}: {store.count} records are less than a batch of {batch_size}.")
    if store.count * field.size_bytes > MAX_BYTES:
        raise DataError(f"{store.url}: more than 1 GiB. Measure a part of it, e.g. one that convert --limit makes.")
    name = values_of(store)
    records = np.concatenate([store.read_block(block.id)[name] for block in store.blocks])
    order = Sampler([block.n for block in store.blocks], batch_size, shuffle, fingerprint=store.fingerprint)
    rates = []
    with Loader(store, order, name="bench") as loader:
        for kind, use in (_copier(records, batch_size), _scaler(records, batch_size)):
            # pages are read, tables are filled
            _run_loader(loader, name, use)
            loops = [(_run_memory(records, batch_size, use), _run_loader(loader, name, use)) for _ in range(rounds)]
            memory, ours = (statistics.median(column) for column in zip(*loops, strict=True))
            share = statistics.median(our / memory for memory, our in loops)
            rates.append(Rate(kind, memory, ours, share, field.size_bytes))
    return rates


Use = Callable[[Array], None]


def _copier(records: Array, batch_size: int) -> tuple[str, Use]:
    buffer = np.zeros((batch_size, *records.shape[1:]), records.dtype)

    def copy(values: Array) -> None:
        # the loader marks what it has not copied
        if not values.flags.writeable:
            np.copyto(buffer, values)

    return str(records.dtype), copy


def _scaler(records: Array, batch_size: int) -> tuple[str, Use]:
    buffer = np.zeros((batch_size, *records.shape[1:]), np.float32)
    ops = get_ops("numpy")
    return "float32 scaled", lambda values: ops.normalize(values, None, SCALE, out=buffer)


def _run_memory(records: Array, batch_size: int, use: Use) -> float:
    records.flags.writeable = False
    steps = len(records) // batch_size
    started = time.perf_counter()
    for _ in range(EPOCHS):
        for i in range(steps):
            use(records[i * batch_size : (i + 1) * batch_size])
    return EPOCHS * steps * batch_size / (time.perf_counter() - started)


def _run_loader(loader: Loader, name: str, use: Use) -> float:
    batch_size = loader.sampler.batch_size
    steps = EPOCHS * loader.store.count // batch_size
    started = time.perf_counter()
    for _ in range(steps):
        batch: Batch = loader.next()
        use(batch.arrays[name])
    seconds = time.perf_counter() - started
    # nothing is read ahead while the other side is measured
    loader.rewind()
    return steps * batch_size / seconds
