"""HDFS without one: which client is taken, what it is told, and what the NameNode's answers mean."""

from __future__ import annotations

import http.client
import io
import json
import sys
import types
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from singa_dask.data import fs
from singa_dask.data.fs import hdfs_blocks
from singa_dask.data.fs.hdfs_calls import os_error
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.errors import DataError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "libhdfs"}, r"unknown client 'libhdfs'\. Known: hdfs3, native, pyarrow, webhdfs"),
        ({"deadline": 3}, r"unknown storage options: deadline\. Known: client, config_dir, deadline_s"),
        ({"client": "hdfs3"}, r"client hdfs3: .*It needs hdfs3 and libhdfs3, which are unmaintained"),
        ({"client": "pyarrow"}, r"client pyarrow: .*It needs a Java machine \(JAVA_HOME\), Hadoop's libhdfs"),
    ],
)
def test_a_client_that_cannot_be_had_is_named(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdfs3", None)
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(DataError, match=rf"^hdfs://127\.0\.0\.1:9/x: {message}"):
        fs.resolve("hdfs://127.0.0.1:9/x", options)


class Hdfs3:
    """As much of hdfs3's filesystem as reading needs, with one file."""

    def __init__(self, host: str, port: int) -> None:
        assert (host, port) == ("nn", 8020)

    def info(self, path: str) -> dict[str, Any]:
        if path != "/dir/file":
            raise FileNotFoundError(path)
        return {"name": path, "size": 10, "kind": "file"}

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        return [self.info("/dir/file")]

    def open(self, path: str, mode: str) -> io.BytesIO:
        return io.BytesIO(b"0123456789")

    def get_block_locations(self, path: str, start: int, length: int) -> list[dict[str, Any]]:
        return [{"hosts": ["a"], "offset": 0, "length": 10}]


def test_hdfs3_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("hdfs3")
    module.HDFileSystem = Hdfs3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hdfs3", module)
    url, options = "hdfs://nn:8020/dir/file", {"client": "hdfs3"}
    assert fs.ls("hdfs://nn:8020/dir", options) == ["file"]
    assert not fs.exists("hdfs://nn:8020/other", options)
    assert bytes(RangeReader(url, options).read(2, 3)) == b"234"
    assert fs.get_block_locations(url, 0, 10, options)[0]["hosts"] == ["a"]


def test_paths_and_roots() -> None:
    for url, path in (("hdfs://h:1/a/b/", "/a/b"), ("hdfs://h:1", "/"), ("viewfs://h/a b#c?d%20", "/a b#c?d%20")):
        filesystem, found = fs.resolve(url)
        assert found == path
        assert filesystem._strip_protocol(url) == path
        assert filesystem._strip_protocol([url]) == [path]
        assert filesystem.unstrip_protocol(path).startswith(filesystem.root)


def test_where_the_namenode_is_asked() -> None:
    web = hdfs_blocks.web_addresses
    assert web("nn:8020", {}) == ["http://nn:9870", "http://nn:50070"]
    assert web("", {}) == []
    assert web("nn:8020", {"dfs.namenode.http-address": "other:1"}) == ["http://other:1"]
    pair = {
        "fs.defaultFS": "hdfs://pair",
        "dfs.http.policy": "HTTPS_ONLY",
        "dfs.ha.namenodes.pair": "a, b",
        "dfs.namenode.https-address.pair.a": "a:1",
        "dfs.namenode.https-address.pair.b": "b:1",
    }
    assert web("pair", pair) == web("", pair) == ["https://a:1", "https://b:1"]


def test_hadoops_configuration_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    assert hdfs_blocks.hadoop_settings() == {}
    etc = tmp_path / "etc/hadoop"
    etc.mkdir(parents=True)
    text = "<configuration><property><name> a.b </name><value>c</value></property></configuration>"
    (etc / "core-site.xml").write_text(text)
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    assert hdfs_blocks.hadoop_settings() == hdfs_blocks.hadoop_settings(str(etc)) == {"a.b": "c"}


def test_the_public_answer_of_webhdfs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    block = {"hosts": ["a", "b"], "offset": 5, "length": 7, "names": ["10.0.0.1:9866"], "corrupt": False}

    def answer(_: Any, url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(json.dumps({"BlockLocations": {"BlockLocation": [block]}}).encode())

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", answer)
    found = hdfs_blocks.block_locations(["http://nn:9870/"], "/a b", 0, 9, "me", 1.0)
    assert found == [{"hosts": ["a", "b"], "offset": 5, "length": 7}]
    assert asked == ["http://nn:9870/webhdfs/v1/a%20b?op=GETFILEBLOCKLOCATIONS&offset=0&length=9&user.name=me"]


@pytest.mark.parametrize("error", [http.client.BadStatusLine("what?"), ConnectionRefusedError(), ValueError("no JSON")])
def test_where_webhdfs_does_not_answer_there_are_no_locations(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def answer(_: Any, url: str, timeout: float) -> io.BytesIO:
        raise error

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", answer)
    assert hdfs_blocks.block_locations(["http://nn:9870/"], "/a", 0, 9, "me", 1.0) == []


def test_other_filesystems_have_no_locations(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    assert fs.get_block_locations(str(tmp_path / "file")) == []


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (
            RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "no\\n\\tat x")'),
            PermissionError,
        ),
        (RuntimeError('RPCError("org.apache.hadoop.fs.FileAlreadyExistsException", "there")'), FileExistsError),
        (FileNotFoundError("gone\n\tat org.apache.hadoop"), FileNotFoundError),
        (RuntimeError("DataTransferError(x)"), OSError),
    ],
)
def test_errors_lose_their_java_stack_and_gain_a_number(raised: Exception, kind: type[OSError]) -> None:
    error = os_error(raised, "hdfs://nn/x")
    assert type(error) is kind
    assert error.errno
    assert str(error).startswith("hdfs://nn/x: ")
    assert "\tat" not in str(error)
