"""Manifests: written beside the data, used at opening where they fit, each block checked at its first read."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.codecs.record import encode_record
from singa_dask.data.stores import Store, open_store, write_manifest
from singa_dask.data.stores.arrays import npz
from singa_dask.data.stores.manifest import manifest_url
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from tests.contracts.foreign import shape_of, write_foreign
from tests.contracts.records import assert_same, floats, pixels, read_all, write_pairs, written
from tests.data.stores.test_lmdb import datum, write_values

WITH_MANIFEST = ["arrow", "csv", "kvfile", "lmdb"]


def uneven(folder: Path | str, n: int = 300) -> str:
    """Write a key-value file whose pairs have different lengths."""
    url = fs.join(str(folder), "uneven.bin")
    write_pairs(url, (("k" * (1 + i % 3), encode_record((1, 4), i % 7, bytes(4))) for i in range(n)))
    return url


def opened_quietly(url: str, caplog: pytest.LogCaptureFixture, backend: str | None = None, **options: Any) -> Store:
    """Open a store whose manifest must not be complained of."""
    caplog.clear()
    store = open_store(url, backend, **options)
    assert not caplog.records
    return store


@pytest.mark.parametrize("backend", WITH_MANIFEST)
def test_a_manifest_tells_the_blocks_and_their_checksums(
    backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = floats(2000, (200,))
    url = written(tmp_path, backend, records)
    with open_store(url) as before:
        fingerprint, blocks = before.fingerprint, before.blocks
        assert [block.crc for block in blocks] == [None] * len(blocks)
    assert write_manifest(url) == [manifest_url(url)] == [str(tmp_path / "_singa" / f"{Path(url).name}.json")]
    with opened_quietly(url, caplog) as store:
        assert store.fingerprint == fingerprint
        assert [(b.n, b.offset, b.length) for b in store.blocks] == [(b.n, b.offset, b.length) for b in blocks]
        assert None not in [block.crc for block in store.blocks]
        assert_same(read_all(store), records)
        assert_same(read_all(store), records)
    noted = json.loads(fs.read_bytes(manifest_url(url)))
    assert noted["fingerprint"] == fingerprint
    assert noted["backend"] == backend


def test_records_of_caffe_and_of_several_lengths(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for url in (
        write_values(tmp_path, [datum(np.full((1, 2, 3), i, np.uint8), i) for i in range(9)]),
        uneven(tmp_path),
    ):
        with open_store(url) as store:
            records = read_all(store)
        write_manifest(url)
        with opened_quietly(url, caplog) as store:
            assert None not in [block.crc for block in store.blocks]
            assert_same(read_all(store), records)


@pytest.mark.parametrize("backend", WITH_MANIFEST)
def test_a_flipped_bit_is_found(backend: str, tmp_path: Path) -> None:
    url = written(tmp_path, backend, pixels(50, (100,)) if backend != "csv" else floats(50, (100,)))
    write_manifest(url)
    path = Path(url) / "data.mdb" if backend == "lmdb" else Path(url)
    with open_store(url) as store:
        last = store.block_bytes(len(store.blocks) - 1)
        assert last is not None
        at = path.read_bytes().index(bytes(last)[-30:]) + 4
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with open_store(url) as store:
        for _ in range(2):
            with pytest.raises(
                DataError, match=r"block 0 \(.*\): the crc32c is .*, expected .*. The data is damaged, or newer than"
            ):
                store.read_block(0)
    write_manifest(url)
    with open_store(url) as store:
        assert store.block_bytes(0)


def test_a_manifest_of_other_data_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for backend in WITH_MANIFEST:
        url = written(tmp_path, backend, floats(50), name="a")
        write_manifest(url)
        written(tmp_path, backend, floats(5000, (20,)), name="a")
        caplog.clear()
        with open_store(url) as store:
            assert store.count == 5000
            assert store.blocks[0].crc is None
            assert_same(read_all(store), floats(5000, (20,)))
        assert len(caplog.records) == 1
        assert "ignored" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"version": 1, "backend": "arrow", "opening": {"bytes": "x"}, "blocks": [{}]}', "\xff"]
)
def test_what_is_no_manifest_is_left_alone(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for backend in WITH_MANIFEST:
        url = written(tmp_path, backend, floats(50))
        fs.write_atomic(manifest_url(url), text.encode("latin-1"))
        with open_store(url) as store, caplog.at_level(logging.WARNING):
            assert_same(read_all(store), floats(50))
        assert "ignored" in caplog.text


def test_blocks_that_are_not_those_of_the_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for backend in ("arrow", "kvfile", "lmdb"):
        url = written(tmp_path, backend, floats(50))
        write_manifest(url)
        noted = json.loads(fs.read_bytes(manifest_url(url)))
        noted["blocks"][0]["length"] += 1
        fs.write_atomic(manifest_url(url), json.dumps(noted).encode())
        caplog.clear()
        with open_store(url) as store:
            assert_same(read_all(store), floats(50))
        assert "ignored: its blocks" in caplog.text


@pytest.mark.parametrize("backend", ["arrow", "lmdb"])
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            b"[3, 4]",
            b"[4, 3]",
            r"holds label \(\) int32, pixel \(4, 3\) uint8, but label \(\) int32, pixel \(3, 4\) uint8",
        ),
        (b'"cat"', b'"cow"', "holds cow, dog, but cat, dog"),
    ],
)
def test_records_described_otherwise_are_found(
    backend: str, before: bytes, after: bytes, said: str, tmp_path: Path
) -> None:
    url = written(tmp_path, backend, pixels(60), class_names=("cat", "dog"))
    write_manifest(url)
    path = Path(url) / "data.mdb" if backend == "lmdb" else Path(url)
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(DataError, match=rf"records\.{backend}: {said} according to its manifest\. The data is damaged"):
        open_store(url)


def test_a_stride_that_is_wrong_is_not_believed(tmp_path: Path) -> None:
    url = written(tmp_path, "kvfile", pixels(60))
    write_manifest(url)
    noted = json.loads(fs.read_bytes(manifest_url(url)))
    noted["opening"]["stride"] *= 2
    fs.write_atomic(manifest_url(url), json.dumps(noted).encode())
    with open_store(url) as store:
        assert_same(read_all(store), pixels(60))


def test_a_key_of_an_impossible_length_is_named(tmp_path: Path) -> None:
    url = written(tmp_path, "kvfile", pixels(60))
    write_manifest(url)
    path = Path(url)
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    with pytest.raises(DataError, match=r"records\.bin: truncated at byte 0"):
        open_store(url)


@pytest.mark.parametrize("constant", [True, False])
def test_a_key_value_file_with_a_manifest_is_not_read_through(
    constant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = written(tmp_path, "kvfile", pixels(500)) if constant else uneven(tmp_path)
    write_manifest(url)
    n_bytes: list[int] = []
    read = RangeReader.read
    monkeypatch.setattr(RangeReader, "read", lambda *given: (n_bytes.append(given[2]), read(*given))[1])
    open_store(url).close()
    assert sum(n_bytes) < 500


def test_each_file_of_a_pattern_has_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in "ab":
        written(tmp_path, "arrow", pixels(10), name=name)
    pattern = str(tmp_path / "*")
    assert [Path(url).name for url in write_manifest(pattern)] == ["a.arrow.json", "b.arrow.json"]
    with opened_quietly(pattern, caplog) as store:
        assert store.count == 20
        assert None not in [block.crc for block in store.blocks]


@pytest.mark.parametrize("backend", ["cifar", "idx", "npy", "npz"])
def test_columns_have_checksums_of_values_and_labels(backend: str, tmp_path: Path) -> None:
    records = pixels(90, shape_of(backend))
    url = write_foreign(tmp_path, backend, records)
    assert write_manifest(url, backend) == [manifest_url(url)]
    with open_store(url, backend) as store:
        assert None not in [block.crc for block in store.blocks]
        assert_same(read_all(store), records)
    labels = [path for path in tmp_path.iterdir() if "labels" in path.name] or [Path(url)]
    data = bytearray(labels[0].read_bytes())
    # the last pixel of npz, else the last label or pixel
    at = data.index(records["pixel"].tobytes()) + records["pixel"].nbytes - 1 if backend == "npz" else -1
    data[at] ^= 1
    labels[0].write_bytes(data)
    with (
        open_store(url, backend) as store,
        pytest.raises(DataError, match=r"block 0.*damaged, or newer than its manifest"),
    ):
        read_all(store)


def test_text_cut_into_other_blocks_does_without(tmp_path: Path) -> None:
    url = written(tmp_path, "csv", floats(500))
    write_manifest(url)
    with open_store(url, block_bytes=1000) as store:
        assert len(store.blocks) > 5
        assert_same(read_all(store), floats(500))


def test_manifests_at_a_url(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = uneven(f"memory://{tmp_path.name}")
    with open_store(url) as store:
        records = read_all(store)
    assert write_manifest(url) == [f"memory://{tmp_path.name}/_singa/uneven.bin.json"]
    with opened_quietly(url, caplog) as store:
        assert_same(read_all(store), records)


IN_ONE_FILE = ["arrow", "cifar", "csv", "idx", "kvfile", "npy", "npz", "parquet", "tfrecord", "webdataset"]


def lined(url: str) -> str:
    fs.write_atomic(url, b"".join(b"line %d\n" % i for i in range(40)))
    return url


@pytest.mark.parametrize("backend", [*IN_ONE_FILE, "lines"])
def test_each_byte_of_a_file_counts(backend: str, tmp_path: Path) -> None:
    foreign = backend in ("cifar", "idx", "npy", "tfrecord", "webdataset")
    shape = shape_of(backend) if foreign else (3, 4)
    if backend == "lines":
        url = lined(str(tmp_path / "lines.txt"))
    else:
        url = write_foreign(tmp_path, backend, pixels(40, shape)) if foreign else written(tmp_path, backend, floats(40))
    assert write_manifest(url, backend) == [manifest_url(url)]
    whole = Path(url).read_bytes()
    for at in {*range(0, len(whole), max(1, len(whole) // 12)), len(whole) - 1}:
        Path(url).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataError, match=Path(url).name), open_store(url, backend) as store:
            read_all(store)


def test_a_header_that_says_something_else_is_found(tmp_path: Path) -> None:
    url = write_foreign(tmp_path, "npy", pixels(40, (4,)))
    np.save(url, np.arange(160, dtype="<i4").reshape(40, 4))
    write_manifest(url)
    Path(url).write_bytes(Path(url).read_bytes().replace(b"<i4", b">i4"))
    with pytest.raises(
        DataError,
        match=r"\.npy: the file has 768 bytes, and its bytes outside all blocks have crc32c .*, expected 768 bytes",
    ):
        open_store(url)


def test_labels_that_are_gone_are_missed(tmp_path: Path) -> None:
    records = pixels(40, (4,))
    np.save(tmp_path / "images.npy", records["pixel"])
    np.save(tmp_path / "labels.npy", records["label"])
    url = str(tmp_path / "images.npy")
    write_manifest(url)
    (tmp_path / "labels.npy").rename(tmp_path / "other.npy")
    with pytest.raises(
        DataError,
        match=r"images\.npy: the files differ from the 2 in its manifest, missing: labels\.npy\. The data is damaged",
    ):
        open_store(url)
    # named, they are read and compared as before
    with open_store(url, labels=str(tmp_path / "other.npy")) as store:
        assert_same(read_all(store), records)


def test_manifests_of_earlier_versions_are_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for backend in WITH_MANIFEST:
        url = written(tmp_path, backend, floats(50))
        write_manifest(url)
        noted = json.loads(fs.read_bytes(manifest_url(url)))
        del noted["files"], noted["options"]
        fs.write_atomic(manifest_url(url), json.dumps(noted).encode())
        with opened_quietly(url, caplog) as store:
            assert store.blocks[0].crc is not None
            assert_same(read_all(store), floats(50))


def test_arrays_of_npz_are_compared_with_the_checksums_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records = floats(40)
    url = written(tmp_path, "npz", records)
    whole = Path(url).read_bytes()
    damaged = bytearray(whole)
    damaged[whole.index(records["data"].tobytes()) + 5] ^= 1
    Path(url).write_bytes(damaged)
    with pytest.raises(DataError, match=r"records\.npz: not an npz file, or a damaged one: Bad CRC-32 for file 'data"):
        open_store(url)
    monkeypatch.setattr(npz, "MAX_CHECKED_BYTES", 1)
    with open_store(url) as store:
        read_all(store)
        with pytest.raises(DataError, match=r"records\.npz: .* Bad CRC-32 for file 'data"):
            store.check_whole()
    Path(url).write_bytes(whole)
    with opened_quietly(url, caplog) as store:
        store.check_whole()
        assert_same(read_all(store), records)
