"""Files on a real HDFS: what `fs` promises of any filesystem, and the sharp edges of this one.

All plain tests on a real HDFS are in this file: each process of pytest-xdist that runs one starts an HDFS of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.outputs import check_output
from singa_dask.fs.range_reader import RangeReader
from tests.hdfs.cluster import BLOCK_BYTES, HOSTS, VERSION, MiniHdfs
from tests.hdfs.jars import HADOOP_3
from tests.hdfs.test_jobs import check_alike
from tests.runtime.harness import SINGLE

DATA = os.urandom(2_500_000)


@pytest.fixture
def url(folder: str) -> str:
    """Write a file of two and a half blocks."""
    url = fs.join(folder, "file")
    fs.write_atomic(url, DATA)
    return url


def test_files_and_directories(folder: str) -> None:
    url = fs.join(folder, "a", "b.txt")
    assert not fs.exists(url)
    fs.write_atomic(url, b"0123456789")
    assert fs.exists(url)
    assert fs.is_dir(fs.join(folder, "a"))
    assert not fs.is_dir(url)
    assert not fs.is_dir(fs.join(folder, "nothing"))
    assert fs.size(url) == 10
    fs.write_atomic(url, b"new")
    assert fs.read_bytes(url) == b"new"
    with fs.open(fs.join(folder, "a", "c"), "wb") as file:
        file.write(b"x")
    with fs.open(fs.join(folder, "a", "c"), "ab") as file:
        file.write(b"y")
    assert fs.read_bytes(fs.join(folder, "a", "c")) == b"xy"
    fs.makedirs(fs.join(folder, "a", "d"))
    fs.makedirs(fs.join(folder, "a", "d"))
    assert fs.ls(fs.join(folder, "a")) == ["b.txt", "c", "d"]
    fs.remove_tree(fs.join(folder, "a"))
    fs.remove_tree(fs.join(folder, "a"))
    assert not fs.exists(url)


@pytest.mark.parametrize(
    ("umask", "modes"),
    [
        ("", (0o755, 0o644)),
        ("077", (0o700, 0o600)),
        ("0002", (0o775, 0o664)),
        ("u=rwx,g=r-x,o=", (0o750, 0o640)),
        ("a=rx", (0o555, 0o444)),
    ],
)
def test_the_umask_of_hadoop(umask: str, modes: tuple[int, int], folder: str, tmp_path: Path) -> None:
    settings = {"fs.permissions.umask-mode": umask} if umask else {}
    (tmp_path / "core-site.xml").write_text(_xml(settings))
    for number, options in enumerate((settings, {"config_dir": str(tmp_path)})):
        url = fs.join(folder, f"{umask}{number}")
        fs.makedirs(url, options)
        fs.write_atomic(fs.join(folder, "whole"), b"x", options)
        with fs.open(fs.join(folder, "opened"), "wb", options) as file:
            file.write(b"x")
        found = [
            fs.resolve(each)[0].info(each)["permission"]
            for each in (url, *(fs.join(folder, n) for n in ("whole", "opened")))
        ]
        assert found == [modes[0], modes[1], modes[1]]
        fs.remove_tree(fs.join(folder, "opened"))


def test_an_umask_that_is_none(folder: str) -> None:
    with pytest.raises(DataError, match=r"umask-mode: got '99', expected a value such as 022 or u=rwx,g=rx,o="):
        fs.makedirs(fs.join(folder, "x"), {"fs.permissions.umask-mode": "99"})


@pytest.mark.cluster
def test_a_job_is_the_same_from_hdfs_as_from_a_local_file(folder: str, tmp_path: Path) -> None:
    check_alike(folder, tmp_path, SINGLE)


def test_a_file_is_created_once(folder: str) -> None:
    url = fs.join(folder, "a", "b.txt")
    assert fs.create(url)
    fs.write_atomic(url, b"first")
    assert not fs.create(url)
    assert fs.read_bytes(url) == b"first"


@pytest.mark.skipif(VERSION != HADOOP_3, reason="WebHDFS of Hadoop 2 sets no quotas")
def test_a_file_that_exceeds_a_quota_is_not_written(mini: MiniHdfs) -> None:
    if not mini.has_webhdfs:
        pytest.skip("no WebHDFS: Debian's jersey jars are not here")
    folder = f"{mini.url}/full"
    fs.makedirs(folder)
    quota = f"op=SETQUOTA&namespacequota=9&storagespacequota=9&user.name={fs.resolve(folder)[0].info('/')['owner']}"
    urllib.request.urlopen(urllib.request.Request(f"{mini.http}/webhdfs/v1/full?{quota}", method="PUT")).close()
    with pytest.raises(DataError, match=r"/full/file.*quota of /full is exceeded"):
        fs.write_atomic(fs.join(folder, "file"), b"some")
    assert fs.ls(folder) == []
    fs.remove_tree(folder)


def test_files_are_read_as_any_file(url: str) -> None:
    with fs.open(url) as file:
        assert file.read(3) == DATA[:3]
        assert file.seek(-5, os.SEEK_END) == len(DATA) - 5
        assert file.read() == DATA[-5:]
        assert file.read() == b""
        assert file.seek(1_000_000) == file.tell() == 1_000_000
        buffer = bytearray(100_000)
        assert file.readinto(buffer) == len(buffer)
        assert bytes(buffer) == DATA[1_000_000:1_100_000]
        file.seek(len(DATA) + 10)
        assert file.read(1) == b""


def test_ranges_end_with_the_file(url: str) -> None:
    filesystem, path = fs.resolve(url)
    n = len(DATA)
    for start, end in (
        (0, 10),
        (BLOCK_BYTES - 5, BLOCK_BYTES + 5),
        (n - 3, n + 10),
        (n, n + 1),
        (n + 5, n + 9),
        (9, 3),
    ):
        assert filesystem.cat_file(path, start, end) == DATA[start:end]
    assert filesystem.cat_file(path, -7) == DATA[-7:]
    assert filesystem.cat_file(path) == DATA
    with pytest.raises(DataError, match="truncated"):
        fs.read_bytes(url, n - 5, 6)
    reader = RangeReader(url)
    assert reader.size == n
    assert bytes(reader.read(5, n - 5)) == DATA[5:]
    assert bytes(reader.read(n, 0)) == b""
    for offset, length in ((n - 5, 6), (-1, 2), (n + 1, 0)):
        with pytest.raises(DataError, match=f"of a file of {n} bytes"):
            reader.read(offset, length)


def test_moves_and_deletes(url: str, tmp_path: Path) -> None:
    filesystem, path = fs.resolve(url)
    filesystem.mv(path, f"{path}2")
    assert not fs.exists(url)
    filesystem.get_file(f"{path}2", str(tmp_path / "here"))
    assert (tmp_path / "here").read_bytes() == DATA
    assert filesystem.find(path.rpartition("/")[0]) == [f"{path}2"]
    with pytest.raises(OSError, match="non empty"):
        filesystem.rm(path.rpartition("/")[0])
    filesystem.rm(f"{path}2")
    with pytest.raises(FileNotFoundError, match=r"file2: no such file"):
        filesystem.rm(f"{path}2")
    with pytest.raises(ValueError, match=r"mode 'r\+b'"):
        filesystem.open(path, "r+b")


def test_a_file_that_fails_is_not_written(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fs.join(folder, "file")
    fs.write_atomic(url, b"old")
    with pytest.raises(KeyError), fs.staged(url) as path:
        path.write_bytes(b"half of the ne")
        raise KeyError
    filesystem, _ = fs.resolve(url)

    def fail(*_: object) -> None:
        raise OSError("the rename failed")

    monkeypatch.setattr(filesystem, "mv", fail)
    with pytest.raises(DataError, match="the rename failed"):
        fs.write_atomic(url, b"new")
    assert fs.read_bytes(url) == b"old"
    assert fs.ls(folder) == ["file"]


def test_errors_name_the_url(folder: str) -> None:
    url = fs.join(folder, "nothing")
    for call in (fs.read_bytes, fs.size, fs.ls, RangeReader, fs.open):
        with pytest.raises(DataError, match=f"^{url}: no such file or directory"):
            call(url)  # type: ignore[operator]


def test_what_is_forbidden_is_a_permission_error(
    mini: MiniHdfs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    filesystem, _ = fs.resolve(mini.url, {"deadline_s": 9.0})
    with pytest.raises(DataError, match="Permission denied: user=somebody"):
        fs.write_atomic(f"{mini.url}/forbidden", b"", {"deadline_s": 9.0})
    with pytest.raises(DataError, match=r"/forbidden: no file can be written to /: .*Permission denied: user=somebody"):
        check_output(f"{mini.url}/forbidden", overwrite=False, by="", storage_options={"deadline_s": 9.0})
    # nothing was written that could be left there
    assert caplog.messages == []
    with pytest.raises(PermissionError, match=r"hdfs://.*/forbidden: .*Permission denied: user=somebody"):
        filesystem.open("/forbidden", "wb")
    monkeypatch.undo()
    before = fs.ls(mini.url)
    check_output(f"{mini.url}/new/deep/file", overwrite=False, by="")
    assert fs.ls(mini.url) == before


def test_urls_travel_and_handles_do_not(url: str) -> None:
    filesystem, path = fs.resolve(url, {"dfs.replication": 1})
    filesystem.info(path)
    pickled = pickle.dumps(filesystem)
    assert len(pickled) < 400
    copy = pickle.loads(pickled)
    assert (copy.root, copy.deadline_s) == (filesystem.root, filesystem.deadline_s)
    assert copy.cat_file(path, 5, 10) == DATA[5:10]
    with filesystem.open(path) as file, pytest.raises(TypeError, match="pickle"):
        pickle.dumps(file)


def _read_in_child(reader: RangeReader, url: str, answers: multiprocessing.SimpleQueue[str]) -> None:
    for read in (lambda: reader.read(0, 10), lambda: fs.read_bytes(url)):
        with pytest.raises(DataError) as caught:
            read()
        answers.put(str(caught.value))


# Python warns of a fork beside threads; what comes of it is tested here.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_be_spawned(url: str) -> None:
    reader = RangeReader(url)
    reader.read(0, 10)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_read_in_child, args=(reader, url, answers))
    child.start()
    child.join(60)
    try:
        assert child.exitcode == 0
        for _ in range(2):
            assert "HDFS was used before this process was forked. Start processes with spawn" in answers.get()
    finally:
        child.kill()
    assert bytes(reader.read(0, 10)) == DATA[:10]


@pytest.fixture
def silent() -> Iterator[str]:
    """Listen without ever answering, as a NameNode behind a wall does."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"hdfs://127.0.0.1:{server.getsockname()[1]}/file"


def test_a_namenode_that_is_not_there_is_said_within_the_deadline(silent: str) -> None:
    with pytest.raises(DataError, match=rf"{silent}: no answer within 0\.2 s\. Is the NameNode of hdfs://127"):
        fs.exists(silent, {"deadline_s": 0.2})


@pytest.mark.parametrize(
    ("place", "deadline_s", "said"),
    [
        ("127.0.0.1:9", 1, "connection refused by 127.0.0.1:9. Is the NameNode up, and is this its RPC port?"),
        # a deadline that the test run does not reach
        ("no-such-host.invalid", 3600, "unknown host 'no-such-host.invalid'. Is its name right?"),
    ],
)
def test_a_wrong_address_is_named(place: str, deadline_s: float, said: str) -> None:
    url = f"hdfs://{place}/file"
    with pytest.raises(DataError, match=rf"^{re.escape(f'{url}: {said}')}"):
        fs.exists(url, {"deadline_s": deadline_s})


@pytest.mark.long
def test_the_hadoop_configuration_names_the_cluster(
    mini: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = mini.url.removeprefix("hdfs://")
    (tmp_path / "core-site.xml").write_text(_xml({"fs.defaultFS": "hdfs://pair"}))
    settings = {
        "dfs.nameservices": "pair",
        "dfs.ha.namenodes.pair": "one,two",
        "dfs.namenode.rpc-address.pair.one": "127.0.0.1:9",
        "dfs.namenode.rpc-address.pair.two": address,
        "dfs.namenode.http-address.pair.one": "127.0.0.1:9",
        "dfs.namenode.http-address.pair.two": mini.http.removeprefix("http://"),
    }
    (tmp_path / "hdfs-site.xml").write_text(_xml(settings))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    fs.write_atomic("hdfs://pair/ha", b"abc")
    assert fs.read_bytes("hdfs:///ha", storage_options={"config_dir": str(tmp_path)}) == b"abc"
    assert fs.read_bytes(f"{mini.url}/ha") == b"abc"
    lengths = [block["length"] for block in fs.get_block_locations("hdfs:///ha")]
    assert lengths == ([3] if mini.has_webhdfs else [])
    fs.remove_tree("hdfs://pair/ha")


@pytest.mark.long
def test_mounts_of_viewfs(mini: MiniHdfs, tmp_path: Path) -> None:
    table = {
        "fs.defaultFS": "viewfs://mounts",
        "fs.viewfs.mounttable.mounts.link./data": f"{mini.url}/mounted/data",
        "fs.viewfs.mounttable.mounts.link./runs": f"{mini.url}/mounted/runs",
    }
    with_fallback = {**table, "fs.viewfs.mounttable.mounts.linkFallback": f"{mini.url}/"}
    for name, settings in {"table": table, "whole": with_fallback}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "core-site.xml").write_text(_xml(settings))
        (tmp_path / name / "hdfs-site.xml").write_text(_xml({}))
    options = {"config_dir": str(tmp_path / "whole")}
    fs.write_atomic(f"{mini.url}/mounted/data/a", b"records")
    assert fs.read_bytes("viewfs://mounts/data/a", storage_options=options) == b"records"
    fs.write_atomic("hdfs:///runs/first/b", b"written", options)
    assert fs.read_bytes(f"{mini.url}/mounted/runs/first/b") == b"written"
    assert fs.ls("viewfs:///runs", options) == ["first"]
    with pytest.raises(DataError, match="Cannot rename across different name services"):
        fs.move("viewfs://mounts/data/a", "viewfs://mounts/runs/a", options)
    with pytest.raises(DataError, match="No viewfs fallback mount found"):
        fs.exists("viewfs://mounts/data/a", {"config_dir": str(tmp_path / "table")})
    fs.remove_tree(f"{mini.url}/mounted")


def _xml(settings: dict[str, str]) -> str:
    properties = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    return f"<configuration>{''.join(properties)}</configuration>"


def test_block_locations_name_the_hosts(mini: MiniHdfs) -> None:
    if not mini.has_webhdfs:
        pytest.skip("no WebHDFS: Debian's jersey jars are not here")
    url, options = f"{mini.url}/located", {"http": mini.http}
    fs.write_atomic(url, DATA)
    blocks = fs.get_block_locations(url, storage_options=options)
    assert [block["offset"] for block in blocks] == [0, BLOCK_BYTES, 2 * BLOCK_BYTES]
    assert [block["length"] for block in blocks] == [BLOCK_BYTES, BLOCK_BYTES, len(DATA) - 2 * BLOCK_BYTES]
    assert all(len(block["hosts"]) == 2 and set(block["hosts"]) <= set(HOSTS) for block in blocks)
    assert fs.get_block_locations(url, storage_options={"http": "http://127.0.0.1:9"}) == []
    fs.remove_tree(url)


@pytest.mark.long
def test_webhdfs_replaces_files(mini: MiniHdfs) -> None:
    pytest.importorskip("requests", reason="the client webhdfs needs it")
    if not mini.has_webhdfs:
        pytest.skip("no WebHDFS: Debian's jersey jars are not here")
    user = fs.resolve(mini.url)[0].info("/")["owner"]
    web = {"user": user, "data_proxy": dict.fromkeys(HOSTS, "127.0.0.1")}
    folder = f"{mini.url}/replaced"
    for url, options in (
        (f"{folder}/a", {"client": "webhdfs", "http": mini.http, **web}),
        (f"{mini.http.replace('http', 'webhdfs')}/replaced/b", web),
    ):
        for data in (b"old", b"the new one"):
            fs.write_atomic(url, data, options)
            assert fs.read_bytes(url, storage_options=options) == data
        assert not fs.create(url, options) and fs.create(f"{url}-new", options)
        fs.remove_tree(f"{url}-new", options)
        fs.write_atomic(f"{url}-other", b"moved", options)
        fs.move(f"{url}-other", url, options)
        assert fs.read_bytes(url, storage_options=options) == b"moved"
        with pytest.raises(DataError, match=r"a folder: cannot be replaced by a rename: "):
            fs.makedirs(f"{url} is a folder/with/content", options)
            fs.write_atomic(f"{url} is a folder", b"x", options)
    assert fs.ls(folder) == ["a", "a is a folder", "b", "b is a folder"]
    fs.remove_tree(folder)


def test_webhdfs_reads_the_same(mini: MiniHdfs) -> None:
    pytest.importorskip("requests", reason="the client webhdfs needs it")
    if not mini.has_webhdfs:
        pytest.skip("no WebHDFS: Debian's jersey jars are not here")
    fs.write_atomic(f"{mini.url}/web", b"0123456789")
    options = {"client": "webhdfs", "http": mini.http}
    assert fs.size(f"{mini.url}/web", options) == 10
    assert fs.ls(mini.url, options) == fs.ls(mini.url)
    fs.remove_tree(f"{mini.url}/web")
