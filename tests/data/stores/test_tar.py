"""Tars of records: where labels are, which files are refused, how much is read, and the index that is kept."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores import open_store, write_manifest
from singa_dask.data.stores.manifest import manifest_url
from singa_dask.data.stores.messages.tar import Member, TarIndex
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader
from tests.contracts.foreign import png, tar
from tests.contracts.records import assert_same, read_all

DATA = np.arange(40 * 30, dtype=np.float32).reshape(40, 30)
LABELS = np.arange(40, dtype=np.int32) % 3
CLASSES = ("cat", "dog", "fox")


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def records(label: str = "cls") -> list[tuple[str, bytes]]:
    """Return the files of all records, with labels as `.cls`, or with a nested key of `.json`."""
    files = []
    for i, (values, number) in enumerate(zip(DATA, LABELS.tolist(), strict=True)):
        text = json.dumps({"id": i, "of": {"class": CLASSES[number], "number": number}}).encode()
        files += [(f"{i:04d}.npy", npy(values)), (f"{i:04d}.json", text)]
        if label == "cls":
            files += [(f"{i:04d}.cls", b"%d\n" % number)]
    return files


def refused(path: Path, files: list[tuple[str, bytes]], message: str, **options: object) -> None:
    path.write_bytes(tar(files))
    with pytest.raises(DataError) as caught, open_store(str(path), **options) as store:
        read_all(store)
    assert str(caught.value).replace(f"{path.parent}/", "") == message


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ()),
        ({"label": "json.of.number"}, ()),
        ({"label": "json.of.class", "classes": CLASSES}, CLASSES),
        ({"classes": CLASSES}, CLASSES),
    ],
)
def test_labels_in_cls_and_json(options: dict[str, object], names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar(records("cls" if "label" not in options else "json")))
    for _ in range(2):
        with open_store(str(path), **options) as store:
            assert store.class_names == names
            assert_same(read_all(store), {"data": DATA, "label": LABELS})
        write_manifest(str(path), **options)


def test_labels_that_are_none(tmp_path: Path) -> None:
    path, value = tmp_path / "x.tar", ("a.npy", npy(DATA[0]))
    for text, message in (
        (b"{", "the JSON is damaged: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
        (b"[1]", "its .json has no key 'y'. It is not an object."),
        (b'{"x": 1, "z": 2}', "its .json has no key 'y'. Keys: x, z."),
        (b'{"y": 1.5}', "the label 1.5 is not a 32-bit integer."),
        (b'{"y": 4294967296}', "the label 4294967296 is not a 32-bit integer."),
        (b'{"y": "cat"}', "the label 'cat' is not a 32-bit integer. Set classes for labels that are text."),
    ):
        refused(path, [value, ("a.json", text)], f"x.tar, record a: {message}", label="json.y")
    refused(
        path,
        [value, ("a.cls", b"cow")],
        "x.tar, record a: the label 'cow' is not among classes: cat, dog, fox.",
        classes=CLASSES,
    )
    refused(
        path,
        [value],
        "x.tar: the label is 'txt', expected cls, or json.KEY with a key of the .json files.",
        label="txt",
    )


def test_files_that_are_refused(tmp_path: Path) -> None:
    path, value = tmp_path / "x.tar", npy(DATA[0])
    refused(path, [("a.npy", value), ("a.npy", value)], "x.tar: record a has two files .npy (byte 1024), expected one.")
    image = npy(np.zeros((3, 4, 5), np.uint8))
    several = [("a.npy", image), ("a.png", png(np.zeros((3, 4, 5), np.uint8)))]
    refused(path, several, "x.tar, record a: the record has several files of images or data, expected one.")
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("b.npy")
        link.type, link.linkname = tarfile.SYMTYPE, "a.npy"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"x\.tar: b\.npy \(byte 0\) is a link, expected a plain file"):
        open_store(str(path))
    sparse = tarfile.TarInfo("s.npy")
    sparse.type = tarfile.GNUTYPE_SPARSE
    path.write_bytes(sparse.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(DataError, match=r"x\.tar: s\.npy \(byte 0\) is sparse, expected a plain file"):
        open_store(str(path))


def test_a_damaged_header_is_not_the_end(tmp_path: Path) -> None:
    whole = bytearray(tar(records()))
    at = whole.index(b"0020.npy")
    whole[at] ^= 1
    path = tmp_path / "x.tar"
    path.write_bytes(whole)
    with pytest.raises(DataError, match=rf"x\.tar: byte {at}: not a tar header, or a damaged one"):
        open_store(str(path))


def test_a_block_is_one_read_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.fs.range_reader.MIN_CACHED_BYTES", 1000)
    fs.write_atomic("memory://tars/x.tar", tar(records()))
    options = {fs.CACHE: {"dir": str(tmp_path / "cache")}}
    reads: list[int] = []
    fetch = RangeReader._read
    monkeypatch.setattr(RangeReader, "_read", lambda self, at, n: [reads.append(n), fetch(self, at, n)][1])
    with open_store("memory://tars/x.tar", storage_options=options) as store:
        reads.clear()
        assert_same(read_all(store), {"data": DATA, "label": LABELS})
        assert reads == [block.length for block in store.blocks]
        assert_same(read_all(store), {"data": DATA, "label": LABELS})
        assert len(reads) == len(store.blocks)
    fs.remove_tree("memory://tars")


def test_headers_are_not_scanned_if_there_is_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "memory://tars/x.tar"
    fs.write_atomic(url, tar(records()))
    with open_store(url) as store:
        fingerprint = store.fingerprint
    assert write_manifest(url) == [manifest_url(url)]
    monkeypatch.setattr("singa_dask.data.stores.messages.tar.scan_tar", None)
    with open_store(url) as store:
        assert store.fingerprint == fingerprint
        assert store.blocks[0].crc is not None
        assert_same(read_all(store), {"data": DATA, "label": LABELS})
    fs.remove_tree("memory://tars")


def test_a_damaged_index_is_not_used() -> None:
    index = TarIndex(["a"], [[Member(".npy", 512, 100)]], [0, 612])
    assert TarIndex.from_dict(index.to_dict()) == index
    for wrong in ({"offsets": [0]}, {"keys": []}, {"members": [[(".npy", 512, 200)]]}, {"members": [[(".npy", 0, 9)]]}):
        with pytest.raises(ValueError, match="not the index of a tar"):
            TarIndex.from_dict({**index.to_dict(), **wrong})


@pytest.mark.parametrize("pack", [lambda *parts: b"".join(parts), lambda *parts: b"".join(map(gzip.compress, parts))])
def test_tars_behind_each_other_are_all_read(pack: Callable[..., bytes], tmp_path: Path) -> None:
    """As by ``cat a.tar b.tar`` and GNU tar's ``-i``; names of files may come again in each."""
    path, empty = tmp_path / "x.tar", tar([])
    parts = [tar([("0.npy", npy(DATA[i])), ("0.cls", b"%d" % i)]) for i in range(3)]
    path.write_bytes(pack(empty, parts[0], parts[1] + bytes(5 << 20), empty, parts[2]))
    for _ in range(2):
        with open_store(str(path), "webdataset") as store:
            assert_same(read_all(store), {"data": DATA[:3], "label": np.arange(3, dtype=np.int32)})
        write_manifest(str(path), "webdataset")
    Path(manifest_url(str(path))).unlink()
    at = len(parts[0])
    for behind, message in ((b"no tar" * 200, "not a tar header"), (b"no tar", "the tar is truncated")):
        path.write_bytes(pack(parts[0], behind))
        with pytest.raises(DataError, match=f"byte {at}: {message}"):
            open_store(str(path), "webdataset")
