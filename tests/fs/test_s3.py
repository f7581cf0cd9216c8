"""Files on S3: their bytes are compared with those that a server of our own holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from singa_dask import fs
from singa_dask.data.stores import open_store
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.versions import version, versions
from tests.cli.conftest import DIGITS
from tests.fs.s3_server import S3Server, s3_server

A, B = bytes(range(256)) * 400, bytes(range(255, -1, -1)) * 400


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        server.objects |= {"a.bin": A, "x/b.bin": A, "x/c d.bin": B}
        yield server


def test_ranges_and_replaced_objects(s3: S3Server) -> None:
    reader = RangeReader("s3://lab/a.bin", s3.options)
    assert bytes(reader.read(1000, 999)) == A[1000:1999]
    reader.check_unchanged()
    s3.objects["a.bin"] = B  # of the same length, in the same second
    assert bytes(reader.read(0, 9)) == B[:9]
    with pytest.raises(DataError, match=r"a.bin: the file was replaced while it was read"):
        reader.check_unchanged()
    reader = RangeReader("s3://lab/a.bin", s3.options)
    del s3.objects["a.bin"]
    with pytest.raises(DataError, match=r"s3://lab/a.bin: .*NoSuchKey"):
        reader.read(0, 9)


def test_listings(s3: S3Server) -> None:
    urls = ["s3://lab/x/b.bin", "s3://lab/x/c d.bin"]
    assert versions(urls, s3.options) == {url: version(url, s3.options) for url in urls}
    assert fs.ls("s3://lab/x", s3.options) == ["b.bin", "c d.bin"]
    s3.objects["x/new.bin"] = B
    assert fs.entries("s3://lab/x", s3.options)[2] == ("new.bin", False, len(B))
    assert not fs.exists("s3://lab/nothing", s3.options)


def test_writing(s3: S3Server) -> None:
    fs.write_atomic("s3://lab/y/d.bin", B, s3.options)
    assert s3.objects["y/d.bin"] == B and len(s3.objects) == 4
    with pytest.raises(DataError, match=r"s3://typo/d.bin: "):
        fs.write_atomic("s3://typo/d.bin", B, s3.options)
    assert not s3.created
    fs.remove_tree("s3://lab/x", s3.options)
    assert sorted(s3.objects) == ["a.bin", "y/d.bin"]


@pytest.mark.parametrize("has_conditions", [True, False])
def test_an_object_is_created_once(s3: S3Server, has_conditions: bool) -> None:
    s3.has_conditions = has_conditions
    assert fs.create("s3://lab/new/a", s3.options)
    s3.objects["new/b"] = B
    assert not fs.create("s3://lab/new/a", s3.options) and not fs.create("s3://lab/new/b", s3.options)
    assert (s3.objects["new/a"], s3.objects["new/b"]) == (b"", B)


@pytest.mark.long
def test_a_busy_server(s3: S3Server) -> None:
    reader = RangeReader("s3://lab/a.bin", s3.options)
    s3.faults = [(503, "SlowDown")]
    assert bytes(reader.read(7, 7)) == A[7:14] and not s3.faults
    s3.faults = [(403, "AccessDenied")]
    with pytest.raises(DataError, match=r"a.bin: .*AccessDenied"):
        reader.read(7, 7)


@pytest.mark.long
def test_a_store_that_is_replaced(s3: S3Server) -> None:
    s3.objects["digits.arrow"] = data = DIGITS.read_bytes()
    with open_store(str(DIGITS)) as local, open_store("s3://lab/digits.arrow", storage_options=s3.options) as store:
        arrays = store.read_block(0)
        assert all((arrays[name] == values).all() for name, values in local.read_block(0).items())
        assert list(store.remote_versions()) == ["s3://lab/digits.arrow"] and not local.remote_versions()
        s3.objects["digits.arrow"] = data[:-1] + bytes([data[-1] ^ 1])
        with pytest.raises(DataError, match="was replaced"):
            store.check_unchanged()
