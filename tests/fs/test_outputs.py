"""Outputs: links, devices, pipes and names of any kind; what is read, or is there already, is not replaced."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from singa_dask import fs
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.outputs import check_output

ELSEWHERE = "Choose another place."


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    for content in (b"first", b"second"):
        fs.write_atomic(str(tmp_path / "link"), content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there" / "file").read_bytes() == content
    assert os.listdir(tmp_path / "there") == ["file"]


def test_a_pipe_gets_the_content(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    fs.write_atomic(str(pipe), b"content")
    reader.join()
    assert found == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("out", ["/dev/stdout", "/dev/fd/1"])
@pytest.mark.parametrize("to", ["a pipe", "a file"])
def test_what_a_process_has_open_gets_the_content(out: str, to: str, tmp_path: Path) -> None:
    script = f"from singa_dask import fs; fs.write_atomic({out!r}, b'content')"
    with (tmp_path / "file").open("wb") as file:
        stdout = file if to == "a file" else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", script], check=True, stdout=stdout)
    assert (done.stdout or (tmp_path / "file").read_bytes()) == b"content"


def test_a_device_is_no_file() -> None:
    assert fs.is_stream(Path(os.devnull))
    assert check_output(os.devnull, overwrite=False, by="--overwrite") == os.devnull


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127, "pred::x.csv", "a b", "what?[1].csv"])
def test_a_name_is_taken_as_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pred").write_text("precious")
    fs.write_atomic(fs.absolute(name), b"1")
    fs.write_atomic(name, b"2")
    assert fs.read_bytes(name) == b"2"
    assert set(os.listdir()) == {"pred", name}
    assert (tmp_path / "pred").read_text() == "precious"


def test_a_name_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="File name too long"):
        fs.write_atomic(str(tmp_path / ("n" * 256)), b"1")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not shutil.which("unshare") or os.getuid() != 0, reason="mounts a file system")
def test_a_disk_that_is_read_only_is_an_error(tmp_path: Path) -> None:
    script = f"""
from singa_dask import errors, fs
from singa_dask.fs.outputs import check_output
for write in (lambda url: check_output(url, overwrite=True, by=""), lambda url: fs.write_atomic(url, b"1")):
    try:
        write("{tmp_path}/x.csv")
    except errors.DataError as error:
        print(error)
"""
    mount = f"mount -t tmpfs -o ro none {tmp_path} && exec {sys.executable} -c '{script}'"
    done = subprocess.run(["unshare", "-m", "bash", "-c", mount], capture_output=True, text=True)
    if "permission denied" in done.stderr.lower():
        pytest.skip("no file system can be mounted here")
    before, at_end = done.stdout.splitlines()
    assert before == f"{tmp_path}/x.csv: no file can be written to {tmp_path}: Read-only file system. {ELSEWHERE}"
    assert at_end.startswith(f"{tmp_path}/x.csv: [Errno 30] Read-only file system")


@pytest.mark.parametrize("folder", ["", "new/deep/"])
def test_a_check_leaves_nothing(folder: str, tmp_path: Path) -> None:
    for root in (f"{tmp_path}/", f"memory://check-{bool(folder)}/"):
        fs.check_writable(f"{root}{folder}x.csv")
    assert os.listdir(tmp_path) == []
    assert not [path for path in MemoryFileSystem.store if f"check-{bool(folder)}" in path]


def test_the_home_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fs.absolute("~/runs") == str(tmp_path / "runs")


@pytest.mark.parametrize("url", ["zip://a.csv::b.zip", "simplecache::memory://b/a.csv", "zip::b.zip"])
def test_a_chain_begins_with_a_protocol(url: str) -> None:
    assert fs.is_chain(url)
    assert fs.absolute(url) == url


@pytest.mark.parametrize("way", ["same", "link", "relative", "hard path"])
def test_what_is_read_is_not_replaced(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("1")
    (tmp_path / "link").symlink_to("data.csv")
    out = {"same": "data.csv", "link": "link", "relative": "./x/../data.csv", "hard path": str(tmp_path / "data.csv")}
    with pytest.raises(ConfigError, match="this file is an input"):
        check_output(out[way], ["other.csv", "data.csv"], overwrite=True, by="--overwrite")


@pytest.mark.parametrize("source", ["d*/[ab].csv", "d", "."])
@pytest.mark.parametrize("protocol", ["", "memory://outputs/"])
def test_a_file_of_a_pattern_or_directory_that_is_read_is_not_replaced(
    source: str, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data/a.csv", "d/a.csv", "d/_SUCCESS", "pictures/pred.csv", "pictures/1.png", "pictures/2.png"):
        fs.write_atomic(protocol + name, b"1")
    out = "d/a.csv" if source == "d" else "data/a.csv"
    with pytest.raises(ConfigError, match="this file is an input"):
        check_output(protocol + out, [(protocol + source).removesuffix(".")], overwrite=True, by="--overwrite")
    for other, read in (("pictures/pred.csv", "pictures"), ("d/new.csv", "d"), ("d/a.csv", "data")):
        check_output(protocol + other, [protocol + read], overwrite=True, by="--overwrite")


@pytest.mark.parametrize("name", ["-", "a.csv.gz", "A.CSV.ZIP"])
def test_a_name_says_what_the_file_will_be(name: str) -> None:
    with pytest.raises(ConfigError, match=r"standard output|outputs are not compressed. Expected a name without "):
        check_output(name, overwrite=True, by="--overwrite")


def test_what_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    file = str(tmp_path / "data.csv")
    assert check_output(file, overwrite=False, by="--overwrite") == file
    fs.write_atomic(file, b"1")
    with pytest.raises(ConfigError, match=r"data.csv: exists already. .* Give --overwrite to replace it"):
        check_output(file, overwrite=False, by="--overwrite")
    assert check_output(file, overwrite=True, by="--overwrite") == file


def test_a_file_elsewhere_is_none_of_this_disk(tmp_path: Path) -> None:
    local, elsewhere = str(tmp_path / "a.csv"), "memory://a.csv"
    for out, source in ((local, elsewhere), (elsewhere, local)):
        assert check_output(out, [source], overwrite=True, by="--overwrite") == out
    with pytest.raises(ConfigError, match="this file is an input"):
        check_output(elsewhere, [elsewhere], overwrite=True, by="--overwrite")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("protocol", ["", "memory://directories/"])
def test_a_directory_is_no_file(
    overwrite: bool, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fs.write_atomic(f"{protocol}pred/x.csv", b"1")
    for name, said in (("pred", "is"), ("pred/", "is"), ("new/", "names")):
        with pytest.raises(ConfigError, match=rf"{name}: this {said} a directory. Expected a file"):
            check_output(protocol + name, overwrite=overwrite, by="--overwrite")
