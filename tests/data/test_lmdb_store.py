"""LMDB: Caffe's and SINGA's records, blocks of our own, and one environment a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from singa_dask.data import encode_record, open_store, protobuf
from singa_dask.data.lmdb_store import write_environment
from singa_dask.data.protobuf import BYTES, FIXED32, VARINT
from singa_dask.errors import DataError
from tests.contracts.records import assert_same, pixels, read_all, stored, written


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
    write_environment(url, ((b"%08d" % i, value) for i, value in enumerate(values)), sum(map(len, values)))
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
    with pytest.raises(DataError, match=r"neither SINGA's records .* nor Caffe's"):
        open_store(write_values(tmp_path, [b"text"]))
    with pytest.raises(DataError, match="encoded images are not read"):
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


def test_only_local_files() -> None:
    with pytest.raises(DataError, match="must lie on a local disk"):
        open_store("memory://records.lmdb", "lmdb")


def test_the_map_grows(tmp_path: Path) -> None:
    url = str(tmp_path / "big.lmdb")
    record = encode_record((1 << 20,), 1, bytes(1 << 20))
    write_environment(url, ((b"%08d" % i, record) for i in range(5)), 1)
    with open_store(url) as store:
        assert (store.count, len(store.blocks)) == (5, 5)


def test_blocks_are_views_that_outlive_the_store(tmp_path: Path) -> None:
    records = pixels(600, (4, 5))
    with stored(tmp_path, "lmdb", records) as store:
        assert store.mapped
        arrays = [store.read_block(block.id) for block in store.blocks]
    for name, array in records.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in arrays]), array)


def test_values_smaller_than_a_page_are_copied(tmp_path: Path) -> None:
    with stored(tmp_path, "lmdb", pixels(100, (4,)), records_per_value=10) as store:
        assert not store.mapped
        np.testing.assert_array_equal(store.read_block(3)["pixel"], pixels(100, (4,))["pixel"][30:40])
