"""LMDB: Caffe's and SINGA's records, and blocks of our own."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.codecs import protobuf
from singa_dask.data.codecs.protobuf import BYTES, FIXED32, VARINT
from singa_dask.data.codecs.record import encode_record
from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import open_store, write_manifest
from singa_dask.data.stores.messages.lmdb import INFO_KEY, KEY, write_environment
from singa_dask.errors import DataError
from singa_dask.fs.cache import open_cache
from tests.contracts.records import assert_same, floats, pixels, read_all, stored, written


def datum(pixel: np.ndarray, label: int | None, encoded: bool = False, floats: Sequence[float] = ()) -> bytes:
    """Write a record as Caffe does."""
    parts = [protobuf.key(i + 1, VARINT) + protobuf.varint(n) for i, n in enumerate(pixel.shape)]
    if not floats:
        parts.append(protobuf.key(4, BYTES) + protobuf.varint(pixel.size) + pixel.tobytes())
    if label is not None:
        parts.append(protobuf.key(5, VARINT) + protobuf.varint(label))
    parts += [protobuf.key(6, FIXED32) + np.float32(value).tobytes() for value in floats]
    if encoded:
        parts.append(protobuf.key(7, VARINT) + b"\1")
    return b"".join(parts)


def write_values(folder: Path, values: Sequence[bytes]) -> str:
    url = str(folder / "values.lmdb")
    write_environment(url, ((b"%08d" % i, value) for i, value in enumerate(values)))
    return url


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 2, 2), (1, 2, 2)])
def test_records_of_caffe(shape: tuple[int, ...], tmp_path: Path) -> None:
    records = pixels(3000, shape)
    records["label"] = np.arange(3000, dtype=np.int32)
    url = write_values(
        tmp_path, [datum(*pair) for pair in zip(records["pixel"], records["label"].tolist(), strict=True)]
    )
    with open_store(url) as store:
        assert_same(read_all(store), records)
        if shape == (1, 28, 28):
            assert len(store.blocks) > 1


@pytest.mark.parametrize("head", [8, 10, 12, 14, 16, 30])
def test_a_wrong_byte_in_the_head_of_a_page_is_named(head: int, tmp_path: Path) -> None:
    url = write_values(tmp_path, [datum(pixel, 3) for pixel in pixels(800)["pixel"]])
    path = Path(url) / "data.mdb"
    whole = path.read_bytes()
    refused = 0
    for start in range(2 * 4096, len(whole), 4096):
        # liblmdb would end the process at some of them
        path.write_bytes(whole[: start + head] + bytes([whole[start + head] ^ 0x40]) + whole[start + head + 1 :])
        try:
            with open_store(url) as store:
                read_all(store)
        except DataError as error:
            assert "values.lmdb" in str(error)
            refused += 1
    assert refused > 5 or head == 8


def test_floats_of_caffe(tmp_path: Path) -> None:
    values = [datum(np.zeros((1, 1, 3), np.uint8), 2, floats=[1.5, -2, i]) for i in range(4)]
    with open_store(write_values(tmp_path, values)) as store:
        assert read_all(store)["data"].tolist() == [[[[1.5, -2, i]]] for i in range(4)]


def test_records_of_singa(tmp_path: Path) -> None:
    records = pixels(50)
    values = [
        encode_record((3, 4), label, pixel.tobytes())
        for pixel, label in zip(records["pixel"], records["label"].tolist(), strict=True)
    ]
    with open_store(write_values(tmp_path, values)) as store:
        assert_same(read_all(store), records)


@pytest.mark.parametrize("n", [1, 7, 256])
def test_records_per_value(n: int, tmp_path: Path) -> None:
    records = pixels(100)
    with open_store(written(tmp_path, "lmdb", records, records_per_value=n)) as store:
        assert len(store.blocks) == -(-100 // n)
        assert_same(read_all(store), records)


def test_bad_records(tmp_path: Path) -> None:
    good = np.zeros((1, 2, 3), np.uint8)
    with pytest.raises(DataError, match=r"neither records of SINGA .* nor of Caffe"):
        open_store(write_values(tmp_path, [b"text"]))
    with pytest.raises(DataError, match=r"nor of Caffe \(record 0: its image: not an image, or a damaged one"):
        open_store(write_values(tmp_path, [datum(good, 1, encoded=True)]))
    for bad in (datum(good, 1, encoded=True), datum(good, None), datum(good.reshape(1, 3, 2), 1), b"text"):
        with open_store(write_values(tmp_path, [datum(good, 1)] * 2 + [bad])) as store:
            with pytest.raises(DataError, match=r"values\.lmdb, block 0 .*record 2: "):
                store.read_block(0)


def test_a_file_may_be_open_twice(tmp_path: Path) -> None:
    records = pixels(10)
    url = written(tmp_path, "lmdb", records)
    first, second = open_store(url), open_store(url)
    first.close()
    assert_same(read_all(second), records)
    second.close()
    second.close()
    with open_store(url) as third:
        assert_same(read_all(third), records)


def test_a_file_that_took_the_place_of_an_open_one(tmp_path: Path) -> None:
    with open_store(written(tmp_path, "lmdb", pixels(10))) as old:
        with open_store(written(tmp_path, "lmdb", pixels(20))) as new:
            assert_same(read_all(new), pixels(20))
        assert_same(read_all(old), pixels(10))


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a folder that is not local, for records that are cached on disk."""
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    return f"memory://{tmp_path.name}-lmdb"


@pytest.mark.parametrize("make", [pixels, floats])
def test_a_file_far_away_is_fetched_into_the_cache(make: type, far: str, tmp_path: Path) -> None:
    url = written(tmp_path, "lmdb", make(700, (30,)))
    fs.write_atomic(f"{far}/x.lmdb/data.mdb", (Path(url) / "data.mdb").read_bytes())
    for each in (f"{far}/x.lmdb", f"{far}/x.lmdb/data.mdb"):
        with open_store(each) as store, open_store(url) as near:
            assert_same(read_all(store), make(700, (30,)))
            assert store.mapped
            assert store.fingerprint == near.fingerprint
    assert (open_cache().hits, open_cache().misses) == (1, 1)
    assert write_manifest(f"{far}/x.lmdb") == [f"{far}/_singa/x.lmdb.json"]
    with open_store(f"{far}/x.lmdb") as store:
        assert None not in [block.crc for block in store.blocks]
        assert_same(read_all(store), make(700, (30,)))
    # another file of this name
    fs.write_atomic(f"{far}/x.lmdb/data.mdb", (Path(written(tmp_path, "lmdb", make(9))) / "data.mdb").read_bytes())
    with open_store(f"{far}/x.lmdb") as store:
        assert_same(read_all(store), make(9))


def test_a_cache_that_cannot_hold_a_file(far: str, tmp_path: Path) -> None:
    data = (Path(written(tmp_path, "lmdb", pixels(9))) / "data.mdb").read_bytes()
    fs.write_atomic(f"{far}/data.mdb", data)
    with pytest.raises(DataError, match=f"{len(data)} bytes exceeds the limit of 10000"):
        open_store(far, "lmdb", {fs.CACHE: {"dir": str(tmp_path / "small"), "limit_gb": 1e-5}})


READ_ALL = """
import sys
from singa_dask.data.stores import open_store
from singa_dask.errors import DataError
for url in sys.argv[1:]:
    try:
        with open_store(url) as store:
            [store.read_block(block.id) for block in store.blocks]
        print("read")
    except DataError as error:
        print("refused")
"""


def write_damaged(whole: bytes, folder: Path) -> list[str]:
    """Write files that end early, or whose first pages have wrong numbers; return their URLs."""
    urls = []
    for length in (0, 1, 20, 130, 4096, 4200, 8192, 8193, len(whole) // 2, len(whole) - 4097, len(whole) - 1):
        urls.append(str(folder / f"{length}.mdb"))
        Path(urls[-1]).write_bytes(whole[:length])
    for name, at, value in (("no page size", 40, 0), ("odd", 40, 4095), ("huge", 40, 1 << 31), ("last", 136, 1 << 40)):
        urls.append(str(folder / f"{name}.mdb"))
        both = [
            whole[page : page + at] + value.to_bytes(8, "little") + whole[page + at + 8 : page + 4096]
            for page in (0, 4096)
        ]
        Path(urls[-1]).write_bytes(b"".join(both) + whole[8192:])
    return urls


@pytest.mark.long
def test_a_file_cut_short_never_kills_the_process(tmp_path: Path) -> None:
    expected, folders = dict[str, str](), [tmp_path / "raw", tmp_path / "Datum"]
    for folder in folders:
        folder.mkdir()
    for url in (
        written(folders[0], "lmdb", pixels(900, (50,))),
        write_values(folders[1], [datum(np.zeros((1, 20, 20), np.uint8), i) for i in range(90)]),
    ):
        damaged = write_damaged((Path(url) / "data.mdb").read_bytes(), Path(url).parent)
        expected |= dict.fromkeys(damaged, "refused") | {url: "read"}
    command = [sys.executable, "-c", READ_ALL, *expected]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = dict(zip(expected, result.stdout.split(), strict=False))
    assert (result.returncode, found) == (0, expected), result.stderr


@pytest.mark.parametrize(
    "note",
    [
        b"no JSON",
        b"[]",
        b"{}",
        b'{"fields": {"pixel": {"dtype": "u1", "shape": [4]}}, "count": 9, "records_per_value": 0}',
        b'{"fields": {"pixel": {"dtype": "u1", "shape": [4]}}, "count": -1, "records_per_value": 1}',
        b'{"fields": {"pixel": {"dtype": "u1", "shape": [4]}}, "count": 10000000, "records_per_value": 1}',
        b'{"fields": {"pixel": {"dtype": "no type", "shape": [4]}}, "count": 9, "records_per_value": 9}',
    ],
)
def test_a_damaged_note_is_named(note: bytes, tmp_path: Path) -> None:
    url = str(tmp_path / "x.lmdb")
    write_environment(url, iter([(KEY % 0, bytes(36)), (INFO_KEY, note)]))
    with pytest.raises(DataError, match=r"x\.lmdb: the value of b'__singa_dask__' is damaged"):
        open_store(url)


def test_the_map_grows(tmp_path: Path) -> None:
    url = str(tmp_path / "big.lmdb")
    record = encode_record((1 << 20,), 1, bytes(1 << 20))
    write_environment(url, ((b"%08d" % i, record) for i in range(5)))
    with open_store(url) as store:
        assert (store.count, len(store.blocks)) == (5, 5)


def test_blocks_are_views_that_outlive_the_store(tmp_path: Path) -> None:
    records = pixels(600, (4, 5))
    with stored(tmp_path, "lmdb", records) as store:
        assert store.mapped
        arrays = [store.read_block(block.id) for block in store.blocks]
    for name, array in records.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in arrays]), array)


def test_values_smaller_than_a_page_are_views_too(tmp_path: Path) -> None:
    with stored(tmp_path, "lmdb", pixels(100, (4,)), records_per_value=10) as store:
        assert store.mapped
        np.testing.assert_array_equal(store.read_block(3)["pixel"], pixels(100, (4,))["pixel"][30:40])


@pytest.mark.parametrize("n_bytes", [20, 800, 3000, 9000])
def test_records_of_one_layout_are_decoded_together(n_bytes: int, tmp_path: Path) -> None:
    records = pixels(700, (1, 1, n_bytes))
    records["label"] = np.arange(700, dtype=np.int32) % 128
    values = [datum(*pair) for pair in zip(records["pixel"], records["label"].tolist(), strict=True)]
    with open_store(write_values(tmp_path, values)) as store:
        for _ in range(2):
            assert_same(read_all(store), records)


def test_batches_of_records_that_are_copied_from_the_file(tmp_path: Path) -> None:
    records = pixels(6000, (1, 28, 28))
    records["label"] = np.arange(6000, dtype=np.int32)
    values = [datum(*pair) for pair in zip(records["pixel"], records["label"].tolist(), strict=True)]
    with open_store(write_values(tmp_path, values)) as store:
        sampler = Sampler([block.n for block in store.blocks], 256, fingerprint=store.fingerprint)
        # the records do not fit, so blocks are not kept for the second epoch
        with Loader(store, sampler, bytes_bound=12 << 20, prefetch=False) as loader:
            for _ in range(60):
                batch = loader.next()
                assert_same(batch.arrays, {name: array[batch.ids] for name, array in records.items()})
            assert len(loader.reader.kept) < len(store.blocks)
            assert loader.reader.bytes_read > 2 * sum(block.length for block in store.blocks)


def test_records_of_other_layouts_are_decoded_each_time(tmp_path: Path) -> None:
    # as long as the others, but the label stands first
    values = [datum(np.full((1, 1, 9), i, np.uint8), i) for i in range(20)]
    label, rest = values[7][-2:], values[7][:-2]
    with open_store(write_values(tmp_path, [*values[:7], label + rest, *values[8:]])) as store:
        for _ in range(2):
            arrays = read_all(store)
            assert arrays["label"].tolist() == list(range(20))
            assert arrays["pixel"][:, 0, 0, 3].tolist() == list(range(20))


def test_a_block_of_another_shape_stays_an_error(tmp_path: Path) -> None:
    values = [datum(np.zeros((1, 28, 28), np.uint8), 1)] * 1280 + [datum(np.zeros((1, 14, 56), np.uint8), 1)] * 5
    with open_store(write_values(tmp_path, values)) as store:
        for _ in range(2):
            with pytest.raises(DataError, match=r"block 1: holds pixel \(1, 14, 56\)"):
                store.read_block(1)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(DataError, match=r"/x\.lmdb: cannot write it: .*\. Is the disk full\?$"):
            write_environment(str(tmp_path / "x.lmdb"), [(b"%d" % i, bytes(1 << 15)) for i in range(9)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
