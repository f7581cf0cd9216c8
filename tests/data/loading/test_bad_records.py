"""Bad records: which ones are found, exactly which others take their places, how many are counted, what is reported."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.codecs.record import encode_record
from singa_dask.data.loading import BadPolicy, Loader
from singa_dask.data.random import draw
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import Store, open_store, write_manifest
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from tests.contracts.foreign import example, frame, png, tar, write_foreign
from tests.contracts.records import assert_same, floats, pixels, stored, write_pairs, written
from tests.data.stores.test_lmdb import datum, write_values
from tests.selection import few_examples

N, BATCH = 40, 4
ROWWISE = ["csv", "image-folder", "image-list", "kvfile", "lmdb", "tfrecord", "webdataset"]


@dataclass
class Damaged:
    """A store with bad records: what is good in it, and how errors say where the first bad one is."""

    url: str
    records: Arrays
    bad: list[int]
    told: str
    options: dict[str, Any] = field(default_factory=dict)


def sorted_labels(shape: Sequence[int]) -> Arrays:
    records = pixels(N, shape)
    records["label"] = np.sort(np.arange(N, dtype=np.int32) % 3)
    return records


def damaged(folder: Path, backend: str) -> Damaged:
    """Write records of which some are bad, each in a way that the format may be."""
    if backend == "csv":
        records, url = floats(N), written(folder, "csv", floats(N))
        lines = Path(url).read_text().splitlines()
        lines[6], lines[7], lines[39] = lines[6].rpartition(",")[0], "x," + lines[7], lines[39].replace(",", "?,", 1)
        Path(url).write_text("\n".join(lines) + "\n")
        told = r"records\.csv, line 7: 5 fields, expected 6"
        return Damaged(url, records, [6, 7, 39], told, {"block_bytes": 300})
    if backend == "kvfile":
        records, url = pixels(N), str(folder / "records.bin")
        odd = {5: encode_record((3, 5), 1, bytes(15)), 6: b"text", 30: encode_record((3, 4), None, bytes(12))}
        values = [encode_record((3, 4), int(y), x.tobytes()) for x, y in zip(*records.values(), strict=True)]
        write_pairs(url, ((f"{i}", odd.get(i, value)) for i, value in enumerate(values)))
        return Damaged(url, records, [5, 6, 30], r"records\.bin, block 0 .*record [56]: ")
    if backend == "lmdb":
        records = pixels(N, (1, 2, 3))
        values = [datum(x, int(y)) for x, y in zip(*records.values(), strict=True)]
        values[9], values[39] = datum(np.zeros((1, 3, 2), np.uint8), 1), b""
        return Damaged(write_values(folder, values), records, [9, 39], r"values\.lmdb, block 0 .*record (9|39): ")
    return damaged_foreign(folder, backend)


def damaged_foreign(folder: Path, backend: str) -> Damaged:
    records = sorted_labels((12,) if backend == "tfrecord" else (3, 4, 5))
    url = write_foreign(folder, backend, records)
    path = Path(url)
    if backend == "tfrecord":
        frames = [
            bytearray(frame(example({"image_raw": x.tobytes(), "label": int(y)})))
            for x, y in zip(*records.values(), strict=True)
        ]
        frames[11][-6] ^= 1
        frames[12] = bytearray(frame(example({"image_raw": bytes(5), "label": 1})))
        path.write_bytes(b"".join(frames))
        return Damaged(url, records, [11, 12], r"tfrecord, block \d+, record \d+ \(byte \d+\): the crc32c is wrong")
    if backend == "webdataset":
        files = []
        for i, (x, y) in enumerate(zip(*records.values(), strict=True)):
            image = png(x)[:30] if i == 3 else png(np.zeros((3, 2, 2), np.uint8)) if i == 20 else png(x)
            files += [(f"{i:06d}.png", image), (f"{i:06d}.cls", b"no" if i == 21 else str(y).encode())]
        path.write_bytes(tar(files))
        return Damaged(url, records, [3, 20, 21], r"records\.tar, block \d, record 000003: not an image")
    images = sorted((folder / "classes").rglob("*.png"))
    images[2].write_bytes(images[2].read_bytes()[:40])
    images[17].write_bytes(png(np.zeros((3, 4, 4), np.uint8)))
    bad = [2, 17]
    if backend == "image-list":
        images[30].unlink()
        bad = [2, 17, 30]
    return Damaged(url, records, bad, rf"{path.name}, block \d.*{images[2].name}: not an image")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several blocks of a few records."""
    monkeypatch.setattr("singa_dask.data.stores.images.image.BLOCK_BYTES", 500)
    monkeypatch.setattr("singa_dask.data.blocks.cut_blocks.__defaults__", (400,))


@pytest.fixture(params=ROWWISE)
def broken(request: pytest.FixtureRequest, tmp_path: Path, small_blocks: None) -> Damaged:
    return damaged(tmp_path, request.param)


def opened(broken: Damaged) -> Store:
    backend = "image-folder" if Path(broken.url).is_dir() and broken.url.endswith("classes") else None
    backend = "image-list" if broken.url.endswith("list.txt") else backend
    return open_store(broken.url, backend, truncated=True, **broken.options)


def order_of(store: Store, shuffle: Any = "none") -> Sampler:
    return Sampler([block.n for block in store.blocks], BATCH, shuffle, 1, fingerprint=store.fingerprint)


def run(loader: Loader, n_steps: int) -> tuple[npt.NDArray[np.int64], Arrays]:
    """Return ids and arrays of some batches, one under the other."""
    batches = []
    for _ in range(n_steps):
        batch = loader.next()
        batches.append((batch.ids.copy(), {name: array.copy() for name, array in batch.arrays.items()}))
    ids = np.concatenate([each[0] for each in batches])
    return ids, {name: np.concatenate([each[1][name] for each in batches]) for name in batches[0][1]}


def stands_in(record: int, bad: Sequence[int], count: int, on_error: str, seed: int = 0) -> int:
    """Say which record takes a bad one's place."""
    if on_error == "replace":
        for attempt in range(8):
            drawn = draw(count, seed, "replace", record, attempt)
            if drawn not in bad:
                return drawn
    return next(each % count for each in itertools.count(record) if each % count not in bad)


def expected(ids: npt.NDArray[np.int64], bad: Sequence[int], count: int, on_error: str) -> list[int]:
    return [stands_in(i, bad, count, on_error) if i in bad else i for i in ids.tolist()]


@pytest.mark.pairs
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_others_take_the_places_of_bad_records(broken: Damaged, on_error: Any, shuffle: Any, prefetch: bool) -> None:
    with opened(broken) as store:
        order = order_of(store, shuffle)
        with Loader(store, order, prefetch=prefetch, policy=BadPolicy(on_error, 3)) as loader:
            # two epochs: each bad record counts once
            ids, arrays = run(loader, 2 * N // BATCH)
            assert ids.tolist() == expected(order.rows(0, n_steps=2 * N // BATCH).ravel(), broken.bad, N, on_error)
            assert_same(arrays, {name: array[ids] for name, array in broken.records.items()})
            assert sorted(loader.bad.records) == broken.bad
            told = loader.bad.take()
            assert not loader.bad.take()
        starts = store.starts
    whole = {bad.block for bad in told if bad.row is None}
    found = sorted(int(starts[bad.block]) + bad.row for bad in told if bad.row is not None and bad.block is not None)
    assert found == [each for each in broken.bad if int(starts.searchsorted(each, side="right")) - 1 not in whole]


def test_under_raise_url_and_block_are_named(broken: Damaged) -> None:
    with opened(broken) as store, Loader(store, order_of(store)) as loader:
        with pytest.raises(DataError, match=broken.told):
            run(loader, N // BATCH)


@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_the_same_for_two_workers_and_after_a_resume(
    tmp_path: Path, small_blocks: None, on_error: Any, shuffle: Any
) -> None:
    broken, policy, n_steps = damaged(tmp_path, "kvfile"), BadPolicy(on_error, 3, seed=7), 2 * N // BATCH
    with opened(broken) as store:
        with Loader(store, order_of(store, shuffle), policy=policy) as loader:
            alone = run(loader, n_steps)[0].reshape(n_steps, BATCH)
        halves = []
        for worker in range(2):
            with Loader(store, order_of(store, shuffle), worker, 2, policy=policy) as loader:
                halves.append(run(loader, n_steps)[0].reshape(n_steps, BATCH // 2))
        np.testing.assert_array_equal(np.concatenate(halves, axis=1), alone)
        with Loader(store, order_of(store, shuffle), policy=policy) as loader:
            run(loader, 7)
            cursor = loader.cursor()
        with Loader(store, order_of(store, shuffle), policy=policy) as loader:
            loader.seek(cursor)
            np.testing.assert_array_equal(run(loader, n_steps - 7)[0].reshape(-1, BATCH), alone[7:])


@pytest.mark.parametrize("prefetch", [False, True])
def test_max_bad(tmp_path: Path, small_blocks: None, prefetch: bool) -> None:
    broken = damaged(tmp_path, "kvfile")
    with opened(broken) as store:
        with Loader(store, order_of(store), prefetch=prefetch, policy=BadPolicy("skip", 2)) as loader:
            ids, _ = run(loader, 7)
            assert ids.tolist() == [0, 1, 2, 3, 4, 7, 7, *range(7, 28)]
            for _ in range(2):
                with pytest.raises(DataError, match=r"bin: 3 bad records, more than the 2 .*max_bad allows.*block 2"):
                    loader.next()
            loader.rewind()
            run(loader, 1)
            with pytest.raises(DataError, match="max_bad"):
                loader.next()
    assert [BadPolicy("skip", share).max_records(400) for share in (0.01, 0.001, 0.5, 1, 7)] == [4, 1, 200, 1, 7]


def test_only_what_a_batch_wants_is_counted(tmp_path: Path, small_blocks: None) -> None:
    with opened(damaged(tmp_path, "kvfile")) as store:
        with Loader(store, order_of(store), policy=BadPolicy("skip", 3)) as loader:
            run(loader, 1)
            assert not loader.bad.records
            run(loader, 1)
            assert sorted(loader.bad.records) == [5, 6]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_labels_out_of_range(tmp_path: Path, on_error: Any) -> None:
    records = pixels(N)
    records["label"][[3, 20]] = [10, -1]
    with stored(tmp_path, "arrow", records, block_bytes=10 * 16) as store:
        with Loader(store, order_of(store), policy=BadPolicy(labels=10)) as loader:
            with pytest.raises(DataError, match=r"records\.arrow, block 0, row 3: label 10, expected 0 to 9\."):
                run(loader, N // BATCH)
        with Loader(store, order_of(store), policy=BadPolicy(on_error, 2, 10)) as loader:
            ids, arrays = run(loader, N // BATCH)
            assert ids.tolist() == expected(np.arange(N), [3, 20], N, on_error)
            assert_same(arrays, {name: array[ids] for name, array in records.items()})
            assert [(bad.block, bad.row, bad.reason) for bad in loader.bad.take()] == [
                (0, 3, "label 10, expected 0 to 9"),
                (2, 0, "label -1, expected 0 to 9"),
            ]
        with Loader(store, order_of(store), policy=BadPolicy()) as loader:
            assert run(loader, N // BATCH)[0].tolist() == list(range(N))


def flip(path: Path, place: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(place)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("backend", ["arrow", "kvfile", "parquet"])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_flipped_byte_spoils_a_block(tmp_path: Path, small_blocks: None, backend: str, on_error: Any) -> None:
    records = pixels(N)
    options = {} if backend == "kvfile" else {"block_bytes": 10 * 16}
    url = written(tmp_path, backend, records, **options)
    if backend != "parquet":
        write_manifest(url)
    flip(Path(url), records["pixel"][11].tobytes())
    with open_store(url) as store:
        (block,) = (each for each in range(len(store.blocks)) if store.starts[each] <= 11 < store.starts[each + 1])
        bad = list(range(int(store.starts[block]), int(store.starts[block + 1])))
        with Loader(store, order_of(store), policy=BadPolicy(on_error, len(bad))) as loader:
            if on_error == "raise":
                with pytest.raises(DataError, match=rf"{Path(url).name}, block {block}.*(crc|CRC)"):
                    run(loader, N // BATCH)
                return
            ids, arrays = run(loader, N // BATCH)
            assert ids.tolist() == expected(np.arange(N), bad, N, on_error)
            assert_same(arrays, {name: array[ids] for name, array in records.items()})
            assert sorted(loader.bad.records) == bad
            (told,) = loader.bad.take()
    assert (told.block, told.row, told.rows) == (block, None, len(bad))
    assert {"block": block, "row": None, "rows": len(bad)}.items() <= told.facts().items()


class Failing(Store):
    """Blocks of two records; those that are named cannot be read."""

    def __init__(self, inner: Store, fails: Sequence[int]) -> None:
        super().__init__(inner.url)
        self.inner, self.blocks, self.schema, self.fails = inner, inner.blocks, inner.schema, fails

    def read_block(self, block_id: int) -> Arrays:
        if block_id in self.fails:
            raise OSError("no answer")
        return self.inner.read_block(block_id)

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_store_without_good_records_is_an_error(tmp_path: Path, on_error: Any, prefetch: bool) -> None:
    with stored(tmp_path, "arrow", pixels(N), block_bytes=2 * 16) as inner:
        store = Failing(inner, range(len(inner.blocks)))
        for most, last in ((N, len(inner.blocks) - 1), (4, 3)):
            with Loader(store, order_of(store), prefetch=prefetch, policy=BadPolicy(on_error, most)) as loader:
                with pytest.raises(DataError, match=rf"no good record .*record 0: .*max_bad allows {most}\. .*OSError"):
                    loader.next()
            assert last


@few_examples(12)
@given(
    fails=st.sets(st.integers(0, 19), max_size=19),
    on_error=st.sampled_from(["skip", "replace"]),
    shuffle=st.sampled_from(["none", "block", "full"]),
    slab=st.integers(1, 200),
)
def test_any_blocks_may_fail(
    tmp_path_factory: pytest.TempPathFactory, fails: set[int], on_error: Any, shuffle: Any, slab: int
) -> None:
    folder, records = tmp_path_factory.mktemp("failing"), pixels(N)
    with stored(folder, "arrow", records, block_bytes=2 * 16) as inner:
        store = Failing(inner, sorted(fails))
        order = order_of(store, shuffle)
        bad = [record for record in range(N) if record // 2 in fails]
        with Loader(store, order, bytes_bound=2000 + 8 * slab * 16, policy=BadPolicy(on_error, N, seed=3)) as loader:
            ids, arrays = run(loader, N // BATCH)
        wanted = order.rows(0, n_steps=N // BATCH).ravel().tolist()
        assert ids.tolist() == [stands_in(i, bad, N, on_error, 3) if i in bad else i for i in wanted]
        assert_same(arrays, {name: array[ids] for name, array in records.items()})
        assert sorted(loader.bad.records) == bad
    shutil.rmtree(folder)


class Unsalvaged(Failing):
    """A store whose blocks cannot be read, neither as a whole nor record by record."""

    def __init__(self, inner: Store, fails: Sequence[int], second: Exception) -> None:
        super().__init__(inner, fails)
        self.second = second

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        raise self.second


def test_a_lack_of_memory_is_no_bad_record(tmp_path: Path) -> None:
    refused = DataError("too large")
    refused.__cause__ = MemoryError()
    with stored(tmp_path, "arrow", pixels(N), block_bytes=2 * 16) as inner:
        for error in (MemoryError("no room"), refused):
            store = Unsalvaged(inner, [1], error)
            with Loader(store, order_of(store), policy=BadPolicy("skip", N)) as loader:
                with pytest.raises(DataError, match=r"block 1: (MemoryError: no room|too large)"):
                    run(loader, 1)


def test_both_errors_of_a_block_are_reasons(tmp_path: Path) -> None:
    with stored(tmp_path, "arrow", pixels(N), block_bytes=2 * 16) as inner:
        store = Unsalvaged(inner, [1], KeyError("pixel"))
        with Loader(store, order_of(store), policy=BadPolicy("skip", N)) as loader:
            run(loader, 1)
            (bad,) = loader.bad.take()
    assert bad.reason.endswith("no answer. Its records cannot be read one by one: KeyError: 'pixel'")


def test_what_failed_once_stays_bad(tmp_path: Path) -> None:
    with stored(tmp_path, "arrow", pixels(N), block_bytes=2 * 16) as inner:
        store = Failing(inner, [1])
        with Loader(store, order_of(store), prefetch=False, policy=BadPolicy("skip", 2)) as loader:
            assert run(loader, 1)[0].tolist() == [0, 1, 4, 4]
            store.fails = []
            loader.rewind()
            assert run(loader, 1)[0].tolist() == [0, 1, 4, 4]
            loader.close()
        with Loader(store, order_of(store), policy=BadPolicy("skip", 2)) as loader:
            assert run(loader, 1)[0].tolist() == [0, 1, 2, 3]
