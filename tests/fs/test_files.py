"""Files at URLs: local and others alike, written whole or not at all, errors with the URL."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import RangeReader


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}-fs"


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_file_is_created_once(folder: str, is_exclusive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fs.join(folder, "a", "b.txt")
    filesystem, _ = fs.resolve(url)
    if not is_exclusive:

        def open_file(path: str, mode: str = "rb", **given: Any) -> Any:
            if mode == "xb":
                raise ValueError(mode)
            return type(filesystem).open(filesystem, path, mode, **given)

        monkeypatch.setattr(filesystem, "open", open_file)
    assert fs.create(url)
    fs.write_atomic(url, b"first")
    assert not fs.create(url)
    assert fs.read_bytes(url) == b"first"


def test_files_and_directories(folder: str) -> None:
    url = fs.join(folder, "a", "b.txt")
    fs.write_atomic(url, b"0123456789")
    assert fs.exists(url)
    assert fs.is_dir(fs.join(folder, "a"))
    assert fs.size(url) == 10
    assert ("a", True) in [each[:2] for each in fs.entries(folder)]
    assert fs.read_bytes(url) == b"0123456789"
    assert fs.read_bytes(url, 2, 3) == b"234"
    assert fs.read_bytes(url, 7) == b"789"
    assert fs.read_bytes(url, 3, 0) == b""
    fs.write_atomic(url, b"new")
    with fs.open(url) as file:
        assert file.read() == b"new"
    with fs.open(fs.join(folder, "a", "c"), "wb") as file:
        file.write(b"x")
    fs.makedirs(fs.join(folder, "a", "d"))
    assert [name for name in fs.ls(fs.join(folder, "a")) if name != "d"] == ["b.txt", "c"]
    fs.remove_tree(fs.join(folder, "a"))
    fs.remove_tree(fs.join(folder, "a"))
    assert not fs.exists(url)


def test_ranges(folder: str) -> None:
    url = fs.join(folder, "file")
    fs.write_atomic(url, b"0123456789")
    reader = RangeReader(url)
    assert reader.size == 10
    assert bytes(reader.read(2, 3)) == b"234"
    assert bytes(reader.read(10, 0)) == b""
    for offset, length in ((8, 3), (-1, 2), (11, 0), (3, -1)):
        with pytest.raises(DataError, match="of a file of 10 bytes"):
            reader.read(offset, length)
    reader.close()
    fs.write_atomic(url, b"")
    assert RangeReader(url).size == 0


def test_a_file_that_fails_is_not_written(folder: str) -> None:
    url = fs.join(folder, "file")
    fs.write_atomic(url, b"old")
    with pytest.raises(KeyError), fs.staged(url) as path:
        path.write_bytes(b"half of the ne")
        raise KeyError
    assert fs.read_bytes(url) == b"old"
    assert fs.ls(folder) == ["file"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    url, names = str(tmp_path / "file"), []
    with subprocess.Popen(["true"]) as dead:
        pass
    for pid in (os.getpid(), dead.pid):
        with fs.staged(url) as path:
            path.write_bytes(b"")
            names.append(path.name.replace(f".{os.getpid()}.", f".{pid}.").replace(".tmp", "0.tmp"))
    for name in (*names, ".file.of-someone-else.tmp", f".file2.{names[1]}"):
        (tmp_path / name).write_bytes(b"half")
    fs.write_atomic(url, b"whole")
    assert sorted(os.listdir(tmp_path)) == sorted(["file", names[0], ".file.of-someone-else.tmp", f".file2.{names[1]}"])


def test_an_upload_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "memory://upload/file"
    fs.write_atomic(url, b"old")
    filesystem, _ = fs.resolve(url)
    put_file = type(filesystem).put_file

    def fail(self: Any, source: str, target: str, **options: Any) -> None:
        put_file(self, source, target, **options)
        assert fs.read_bytes(url) == b"old"
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(DataError, match="memory://upload/file: no space left"):
        patch.setattr(type(filesystem), "put_file", fail)
        fs.write_atomic(url, b"new")
    assert (fs.read_bytes(url), fs.ls("memory://upload")) == (b"old", ["file"])
    fs.write_atomic(url, b"new")
    assert (fs.read_bytes(url), fs.ls("memory://upload")) == (b"new", ["file"])
    fs.remove_tree("memory://upload")


def test_move(folder: str) -> None:
    for name in ("a/1", "a/2", "b/1"):
        fs.write_atomic(fs.join(folder, name), name.encode())
    fs.move(fs.join(folder, "a"), fs.join(folder, "b"))
    assert [fs.read_bytes(fs.join(folder, "b", name)) for name in "12"] == [b"a/1", b"a/2"]
    assert not fs.exists(fs.join(folder, "a", "1"))


def test_errors_name_the_url(folder: str) -> None:
    url = fs.join(folder, "nothing")
    for call in (fs.read_bytes, fs.size, fs.ls, RangeReader, fs.open):
        with pytest.raises(DataError, match=r"nothing: no such file or directory"):
            call(url)  # type: ignore[operator]
    with pytest.raises(DataError, match="nosuch://x: "):
        fs.exists("nosuch://x")
    fs.write_atomic(fs.join(folder, "short"), b"123")
    with pytest.raises(DataError, match="truncated"):
        fs.read_bytes(fs.join(folder, "short"), 1, 5)


def test_a_file_where_a_directory_is_expected(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for url in (f"{tmp_path}/file/a", f"{tmp_path}/file/a/b"):
        with pytest.raises(DataError, match=f"^{url}: this is a file, expected a directory.$"):
            fs.write_atomic(url, b"1")


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fs.absolute("a/b") == str(tmp_path / "a" / "b")
    assert fs.absolute("/a/b") == "/a/b"
    assert fs.absolute("memory://a") == "memory://a"
    assert fs.absolute("") == ""
    assert fs.local_path("/a/b") == Path("/a/b")
    assert fs.local_path("file:///a/b") == Path("/a/b")
    assert fs.local_path("memory://a") is None


@pytest.mark.parametrize("ask", [fs.exists, fs.is_dir, fs.look, fs.remove_tree])
@pytest.mark.parametrize(("error", "raised"), [(SystemExit(143), SystemExit), (OSError("no network"), DataError)])
def test_a_signal_or_an_error_is_not_taken_for_a_missing_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[str], object],
    error: BaseException,
    raised: type[BaseException],
) -> None:
    def info(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(LocalFileSystem, "info", info)
    with pytest.raises(raised):
        ask(str(tmp_path))


def test_a_file_that_cannot_be_written_whole_is_named(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, limits[1]))
    try:
        with (
            pytest.raises(DataError, match=r"/big\.bin: \[Errno 27\] File too large$"),
            fs.staged(str(tmp_path / "big.bin")) as path,
            path.open("wb") as file,
        ):
            file.write(bytes(1 << 12))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
