"""Readers of other libraries, and ours, for the benchmark of peers: batches of 256 records in file order or shuffled.

Run as a program, this is one contender: it makes its files from arrays of numpy, reads a line per round on stdin, and
answers each with a line of JSON. It imports the package of its reader only, so each may run in a Python of its own.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BATCH", "READERS", "Reader"]

BATCH = 256
# seconds of one round at most: slow readers are stopped within an epoch
LIMIT_S = 4.0
# records in the buffer of readers that shuffle a stream, as in their documentation
SHUFFLE_BUFFER = 1000

Array = np.ndarray[Any, Any]
Batches = Iterable[Array]


class Source(NamedTuple):
    """The records, mapped: pixels (n, ...) uint8, labels (n,) int32; and a folder for files made of them."""

    pixel: Array
    label: Array
    folder: Path


class Reader(NamedTuple):
    """How files are made, how one epoch is read (shuffled or not), and the package that must be installed."""

    make: Callable[[Source], None]
    read: Callable[[Source, bool], Batches]
    package: str = "numpy"


def nothing(source: Source) -> None:
    """Make no files: the arrays themselves are read."""


def ids_of(source: Source, shuffled: bool) -> Array:
    n = len(source.label)
    return np.random.default_rng().permutation(n) if shuffled else np.arange(n)


def chunks(n: int) -> Iterator[tuple[int, int]]:
    return pairwise(range(0, n + 1, BATCH))


# what a job opens once, and keeps for all epochs
_KEPT: dict[Any, Any] = {}

# -- by hand ---------------------------------------------------------------------------------------------


def read_memory(source: Source, shuffled: bool) -> Batches:
    if "memory" not in _KEPT:
        _KEPT["memory"] = np.array(source.pixel)
    return by_hand(_KEPT["memory"], ids_of(source, shuffled), shuffled)


def read_memmap(source: Source, shuffled: bool) -> Batches:
    return by_hand(source.pixel, ids_of(source, shuffled), shuffled)


def by_hand(pixel: Array, ids: Array, shuffled: bool) -> Batches:
    for first, end in chunks(len(ids)):
        yield pixel[ids[first:end]] if shuffled else pixel[first:end]


# -- ours ------------------------------------------------------------------------------------------------

SUFFIX = {"arrow": "arrow", "lmdb": "lmdb", "parquet": "parquet"}


def make_ours(name: str) -> Callable[[Source], None]:
    def make(source: Source) -> None:
        stores = importlib.import_module("singa_dask.data.stores")
        stores.STORES.find(name).write(
            f"{source.folder}/records.{SUFFIX[name]}", {"pixel": source.pixel, "label": source.label}
        )

    return make


def read_ours(name: str) -> Callable[[Source, bool], Batches]:
    def read(source: Source, shuffled: bool) -> Batches:
        if (name, shuffled) not in _KEPT:
            stores, orders, loading = (
                importlib.import_module(f"singa_dask.data.{room}") for room in ("stores", "order", "loading")
            )
            store = stores.open_store(f"{source.folder}/records.{SUFFIX[name]}")
            shuffle = "full" if shuffled else "none"
            order = orders.Sampler([block.n for block in store.blocks], BATCH, shuffle, fingerprint=store.fingerprint)
            _KEPT[name, shuffled] = loading.Loader(store, order, name="bench")
        loader = _KEPT[name, shuffled]
        try:
            for _ in range(loader.store.count // BATCH):
                yield loader.next().arrays["pixel"]
        finally:
            # nothing is read ahead while others are measured
            loader.rewind()

    return read


# -- PyTorch's DataLoader --------------------------------------------------------------------------------


class Rows:
    """A dataset of PyTorch over a memory map: a record, or a list of them."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source.label)

    def __getitem__(self, index: Any) -> tuple[Array, Any]:
        return np.asarray(self._source.pixel[index]), self._source.label[index]


def read_torch(n_workers: int, whole: bool) -> Callable[[Source, bool], Batches]:
    def read(source: Source, shuffled: bool) -> Batches:
        if shuffled not in _KEPT:
            torch_data = importlib.import_module("torch.utils.data")
            rows = Rows(source)
            options: dict[str, Any] = {"batch_size": BATCH, "shuffle": shuffled, "drop_last": True}
            if whole:
                order = (torch_data.RandomSampler if shuffled else torch_data.SequentialSampler)(rows)
                options = {"batch_size": None, "sampler": torch_data.BatchSampler(order, BATCH, drop_last=True)}
            _KEPT[shuffled] = torch_data.DataLoader(
                rows, num_workers=n_workers, persistent_workers=n_workers > 0, **options
            )
        for pixel, _ in _KEPT[shuffled]:
            yield pixel.numpy()

    return read


# -- others ----------------------------------------------------------------------------------------------


def make_pyarrow(source: Source) -> None:
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    flat = source.pixel.reshape(len(source.pixel), -1)
    column = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(flat.shape[1]), len(flat), [None, pa.py_buffer(np.ascontiguousarray(flat))]
    )
    table = pa.table({"pixel": column, "label": np.asarray(source.label)})
    pq.write_table(table, source.folder / "records.parquet", row_group_size=2048, use_dictionary=False)


def read_pyarrow(source: Source, shuffled: bool) -> Batches:
    dataset = importlib.import_module("pyarrow.dataset").dataset(source.folder / "records.parquet")
    shape = (-1, *source.pixel.shape[1:])
    if shuffled:
        ids = ids_of(source, True)
        tables = (dataset.take(ids[first:end]).combine_chunks().to_batches()[0] for first, end in chunks(len(ids)))
    else:
        tables = dataset.to_batches(batch_size=BATCH)
    for table in tables:
        column = table.column("pixel")
        width = column.type.byte_width
        flat = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
        yield flat.reshape(shape)


def make_petastorm(source: Source) -> None:
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    (source.folder / "parquet").mkdir()
    values = [row.tobytes() for row in source.pixel]
    table = pa.table({"pixel": pa.array(values, pa.binary()), "label": np.asarray(source.label)})
    pq.write_table(table, source.folder / "parquet" / "0.parquet", row_group_size=2048)


def read_petastorm(source: Source, shuffled: bool) -> Batches:
    reader = importlib.import_module("petastorm").make_batch_reader(
        f"file://{source.folder}/parquet", num_epochs=1, shuffle_row_groups=shuffled
    )
    shape = (-1, *source.pixel.shape[1:])
    with reader:
        for group in reader:
            rows = np.frombuffer(b"".join(group.pixel), np.uint8).reshape(shape)
            for first in range(0, len(rows), BATCH):
                yield rows[first : first + BATCH]


def make_mosaic(source: Source) -> None:
    streaming = importlib.import_module("streaming")
    shape = ",".join(map(str, source.pixel.shape[1:]))
    columns = {"pixel": f"ndarray:uint8:{shape}", "label": "int"}
    with streaming.MDSWriter(out=str(source.folder / "mds"), columns=columns) as writer:
        for pixel, label in zip(source.pixel, source.label.tolist(), strict=True):
            writer.write({"pixel": np.array(pixel), "label": label})


def read_mosaic(source: Source, shuffled: bool) -> Batches:
    if ("mosaic", shuffled) not in _KEPT:
        streaming = importlib.import_module("streaming")
        _KEPT["mosaic", shuffled] = streaming.StreamingDataset(
            local=str(source.folder / "mds"), shuffle=shuffled, batch_size=BATCH
        )
    loader = importlib.import_module("torch.utils.data").DataLoader(_KEPT["mosaic", shuffled], batch_size=BATCH)
    for batch in loader:
        yield batch["pixel"].numpy()


def make_webdataset(source: Source) -> None:
    webdataset = importlib.import_module("webdataset")
    with webdataset.TarWriter(str(source.folder / "records.tar")) as writer:
        for i, (pixel, label) in enumerate(zip(source.pixel, source.label.tolist(), strict=True)):
            writer.write({"__key__": f"{i:08d}", "npy": np.array(pixel), "cls": label})


def read_webdataset(source: Source, shuffled: bool) -> Batches:
    dataset = importlib.import_module("webdataset").WebDataset(str(source.folder / "records.tar"), shardshuffle=False)
    if shuffled:
        dataset = dataset.shuffle(SHUFFLE_BUFFER)
    for pixel, _ in dataset.decode().to_tuple("npy", "cls").batched(BATCH):
        yield pixel


READERS = {
    "copies in memory": Reader(nothing, read_memory),
    "memory map, by hand": Reader(nothing, read_memmap),
    **{f"ours, {name}": Reader(make_ours(name), read_ours(name), "singa_dask") for name in SUFFIX},
    "DataLoader, records": Reader(nothing, read_torch(0, False), "torch"),
    "DataLoader, records, 2 workers": Reader(nothing, read_torch(2, False), "torch"),
    "DataLoader, batches": Reader(nothing, read_torch(0, True), "torch"),
    "DataLoader, batches, 2 workers": Reader(nothing, read_torch(2, True), "torch"),
    "pyarrow dataset": Reader(make_pyarrow, read_pyarrow, "pyarrow"),
    "petastorm": Reader(make_petastorm, read_petastorm, "petastorm"),
    "mosaicml-streaming": Reader(make_mosaic, read_mosaic, "streaming"),
    "webdataset": Reader(make_webdataset, read_webdataset, "webdataset"),
}

# -- the contender ---------------------------------------------------------------------------------------


def measure(reader: Reader, source: Source, shuffled: bool) -> float:
    """Return records per second of an epoch, or of as much of it as fits into the limit."""
    buffer = np.zeros((BATCH, *source.pixel.shape[1:]), np.uint8)
    n, started = 0, time.perf_counter()
    for batch in reader.read(source, shuffled):
        # counts once it is in memory of the reader's own
        np.copyto(buffer[: len(batch)], batch)
        n += len(batch)
        if time.perf_counter() - started > LIMIT_S:
            break
    return n / (time.perf_counter() - started)


def check(reader: Reader, source: Source) -> None:
    """Read the first batches in file order, and compare them with the records; raise a ValueError if they differ."""
    at = 0
    for batch, _ in zip(reader.read(source, False), range(3), strict=False):
        if not np.array_equal(batch, source.pixel[at : at + len(batch)]):
            raise ValueError(f"records from {at} on are not those that were written")
        at += len(batch)
    if not at:
        raise ValueError("no records are read")


def main() -> None:
    """Serve rounds: each line of stdin is "none" or "full"."""
    name, records, folder = sys.argv[1:]
    reader = READERS[name]
    source = Source(
        np.load(f"{records}/pixel.npy", mmap_mode="r"), np.load(f"{records}/label.npy", mmap_mode="r"), Path(folder)
    )
    try:
        importlib.import_module(reader.package)
        reader.make(source)
        check(reader, source)
    except Exception as error:
        print(json.dumps({"skipped": f"{type(error).__name__}: {error}"}), flush=True)
        return
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        try:
            print(json.dumps({"rate": measure(reader, source, line.strip() == "full")}), flush=True)
        except Exception as error:
            print(json.dumps({"skipped": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
