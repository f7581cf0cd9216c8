"""Limits on decompression: bombs are refused before they fill the memory, whatever their headers state."""

from __future__ import annotations

import gzip
import io
import tempfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from singa_dask import fs
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.images.image_decoding import decode_image
from singa_dask.errors import DataError
from singa_dask.fs import decompression
from singa_dask.fs.decompression import gunzip, limit_of, read_member
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import BytesInMemory

LIMIT = 1 << 20
OPTIONS = {fs.MAX_DECOMPRESSED: LIMIT / 1e6}
BOMB_BYTES = 40 << 20
# where nothing is said of the memory
SMALL_BOMB_BYTES = 4 << 20
EXPECTED = r"the data decompress to \d+ MB or more; the limit is 1 MB\. .* raise max_decompressed_mb"


def idx(n: int) -> bytes:
    return b"\0\0\x08\x03" + b"".join(side.to_bytes(4, "big") for side in (n, 10, 10)) + bytes(100 * n)


@pytest.mark.parametrize("parts", [[b""], [b"a", b"", b"b" * 3_000_000], [b"x" * 10] * 100])
@pytest.mark.parametrize("padding", [b"", b"\0" * 7])
def test_members_of_a_gzip_file_are_joined(parts: list[bytes], padding: bytes) -> None:
    data = b"".join(gzip.compress(part) + padding for part in parts)
    assert bytes(gunzip(BytesInMemory("a.gz", data), 1 << 30)) == gzip.decompress(data) == b"".join(parts)
    for damaged in (data[: -len(padding) - 3], data[:-12] + b"\xff" * 12, data + b"more"):
        with pytest.raises(DataError, match=r"a\.gz: the gzip file is damaged"):
            gunzip(BytesInMemory("a.gz", damaged), 1 << 30)


def test_the_limit_of_the_options() -> None:
    assert limit_of(None) == limit_of({}) == 8192 * 10**6
    assert limit_of(OPTIONS) == LIMIT


def test_a_gzip_bomb_is_not_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "images.idx.gz"
    path.write_bytes(gzip.compress(idx(BOMB_BYTES // 100)))
    tracemalloc.start()
    with pytest.raises(DataError, match=rf"{path}: {EXPECTED}"):
        open_store(str(path), storage_options=OPTIONS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BOMB_BYTES / 4
    with open_store(str(path)) as store:
        assert store.count == BOMB_BYTES // 100


def test_many_gzipped_shards_are_not_all_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "IN_MEMORY_BYTES", 25_000)
    for i in range(5):
        (tmp_path / f"part-{i}.idx.gz").write_bytes(
            gzip.compress(idx(100).replace(b"\0" * 10_000, bytes([i]) * 10_000))
        )
    held = len(decompression._HELD)
    with open_store(str(tmp_path / "part-*.idx.gz")) as store:
        assert len(decompression._HELD) == held + 2
        values = [store.read_block(block.id)["pixel"] for block in store.blocks]
    assert [int(each.min()) for each in values] == [int(each.max()) for each in values] == [0, 1, 2, 3, 4]
    del values, store
    assert len(decompression._HELD) == held


def test_a_full_disk_of_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    (tmp_path / "a.idx.gz").write_bytes(gzip.compress(idx(10)))
    with pytest.raises(DataError, match=r"a\.idx\.gz: cannot decompress .* to .*none: No such .* Set TMPDIR"):
        open_bytes(str(tmp_path / "a.idx.gz"))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_of_a_zip_archive(method: int, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", bytes(SMALL_BOMB_BYTES))
    with zipfile.ZipFile(path) as archive:
        member = archive.infolist()[0]
        assert read_member(archive, member, "a.zip, a", SMALL_BOMB_BYTES) == bytes(SMALL_BOMB_BYTES)
        with pytest.raises(DataError, match=f"a.zip, a: {EXPECTED}"):
            read_member(archive, member, "a.zip, a", LIMIT)
        # a header that states less than there is
        member.file_size = 1000
        with pytest.raises(zipfile.BadZipFile):
            read_member(archive, member, "a.zip, a", LIMIT)


def test_a_bomb_in_an_npz_file(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((SMALL_BOMB_BYTES // 100, 10, 10), np.uint8))
    with pytest.raises(DataError, match=rf"a\.npz, x\.npy: {EXPECTED}"):
        open_store(str(tmp_path / "a.npz"), storage_options=OPTIONS)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_bomb_in_an_arrow_file(compression: str, tmp_path: Path) -> None:
    records: dict[str, Any] = {"pixel": np.zeros((20_000, 10, 10), np.uint8), "label": np.zeros(20_000, np.int32)}
    STORES.find("arrow").write(str(tmp_path / "a.arrow"), records, block_bytes=1 << 22, compression=compression)
    with open_store(str(tmp_path / "a.arrow"), storage_options=OPTIONS) as store:
        with pytest.raises(DataError, match=rf"a\.arrow, block 0: {EXPECTED}"):
            store.read_block(0)
    with open_store(str(tmp_path / "a.arrow")) as store:
        np.testing.assert_array_equal(store.read_block(0)["pixel"], records["pixel"])


def test_a_bomb_in_a_parquet_file(tmp_path: Path) -> None:
    # runs of equal values are 60 bytes in the file, and as many in the total of decompressed sizes
    table = pa.table({"x": pa.array([bytes(100)] * 60_000, pa.binary(100))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=60_000)
    assert (tmp_path / "a.parquet").stat().st_size < 5000
    with pytest.raises(DataError, match=rf"a\.parquet, block 0: {EXPECTED}"):
        open_store(str(tmp_path / "a.parquet"), storage_options=OPTIONS)


def test_an_image_of_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    Image.fromarray(np.zeros((200, 200), np.uint8)).save(file, "PNG")
    for limit in (10_000, 30_000):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(DataError, match=r"a\.png: not an image.* \(40000 pixels\) exceeds limit"):
            decode_image(file.getvalue(), "a.png")
