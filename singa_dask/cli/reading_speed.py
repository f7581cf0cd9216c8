"""Measure how fast the loader reads records of a store, compared to memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singa_dask.errors import DataError
from singa_dask.shown import plural

if TYPE_CHECKING:
    import numpy as np

    from singa_dask.data.loading import Loader
    from singa_dask.data.sampler import Shuffle
    from singa_dask.data.stores import Store


# number of epochs that are measured; the second epoch begins inside a block
EPOCHS = 2
MAX_BYTES = 1 << 30
SCALE = 255.0


def values_of(store: Store) -> str:
    """Return the name of the field with the values of a record."""
    known = ("data", "pixel", *(name for name in store.schema if name != "label"), "label")
    return next(name for name in known if name in store.schema)


@dataclass(frozen=True)
class Rate:
    """Speed of reading one kind of batches, in records per second, from memory and by the loader."""

    batches: str
    memory: float
    loader: float
    share: float
    first_epoch: float
    record_bytes: int


def measure(store: Store, batch_size: int = 256, shuffle: Shuffle = "none", rounds: int = 3) -> list[Rate]:
    """Measure how fast the loader reads batches, and how fast the same records are copied in memory.

    Two kinds of batches are measured: as they are stored, and scaled to float32. Loader and memory are measured in
    turns, and the medians of ``rounds`` are returned. Views of the file are copied, so that the time includes reading
    it. Raises a DataError if there are fewer records than a batch, or more than 1 GiB.
    """
    import numpy as np

    from singa_dask.data.loading import Loader
    from singa_dask.data.sampler import Sampler
    from singa_dask.ops import get_ops

    name = values_of(store)
    field = store.schema[name]
    if store.count < batch_size:
        raise DataError(
            f"{store.url}: {plural(store.count, 'record is', 'records are')} less than a batch of {batch_size}."
        )
    if store.count * field.size_bytes > MAX_BYTES:
        raise DataError(f"{store.url}: more than 1 GiB. Measure a part of it, e.g. one that convert --limit makes.")
    records = np.concatenate([store.read_block(block.id)[name] for block in store.blocks])
    sizes = [block.n for block in store.blocks]
    order = Sampler(sizes, batch_size, shuffle, runs=store.runs, fingerprint=store.fingerprint)
    copies = np.zeros((batch_size, *records.shape[1:]), records.dtype)
    scaled, ops = np.zeros(copies.shape, np.float32), get_ops("numpy")

    def copy(values: np.ndarray) -> None:
        # copy the loader's values, because its views are read-only
        if not values.flags.writeable:
            np.copyto(copies, values)

    def scale(values: np.ndarray) -> None:
        ops.normalize(values, None, SCALE, out=scaled)

    rates = []
    for kind, use in ((str(records.dtype), copy), ("float32 scaled", scale)):
        with Loader(store, order, name="bench") as loader:
            first = _run_loader(loader, name, use, 1)
            loops = [(_run_memory(records, batch_size, use), _run_loader(loader, name, use)) for _ in range(rounds)]
            memory, ours = (statistics.median(column) for column in zip(*loops, strict=True))
            share = statistics.median(our / memory for memory, our in loops)
            rates.append(Rate(kind, memory, ours, share, first, field.size_bytes))
    return rates


def _run_memory(records: np.ndarray, batch_size: int, use: Callable[[np.ndarray], None]) -> float:
    records.flags.writeable = False
    steps = len(records) // batch_size
    started = time.perf_counter()
    for _ in range(EPOCHS):
        for i in range(steps):
            use(records[i * batch_size : (i + 1) * batch_size])
    return EPOCHS * steps * batch_size / (time.perf_counter() - started)


def _run_loader(loader: Loader, name: str, use: Callable[[np.ndarray], None], n_epochs: int = EPOCHS) -> float:
    batch_size = loader.sampler.batch_size
    steps = n_epochs * loader.store.count // batch_size
    started = time.perf_counter()
    for _ in range(steps):
        use(loader.next().arrays[name])
    seconds = time.perf_counter() - started
    # do not read ahead while memory is measured
    loader.rewind()
    return steps * batch_size / seconds
