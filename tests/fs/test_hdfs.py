"""HDFS without one: which client is taken, what it is told, and what the NameNode's answers mean."""

from __future__ import annotations

import errno
import getpass
import http.client
import io
import json
import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.hdfs import block_locations, hadoop_conf
from singa_dask.fs.hdfs.connection import HdfsConnection
from singa_dask.fs.hdfs.native_errors import NOT_RESTORED, os_error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "libhdfs"}, r"unknown client 'libhdfs'\. Known: native, pyarrow, webhdfs"),
        ({"deadline": 3}, r"unknown storage options: deadline\. Known: client, config_dir, deadline_s"),
        ({"client": "hdfs3"}, r"client hdfs3: it supports no Python .* Leave client out\."),
        ({"client": "pyarrow"}, r"client pyarrow: .*It needs a Java machine \(JAVA_HOME\), Hadoop's libhdfs"),
    ],
)
def test_a_client_that_cannot_be_had_is_named(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(DataError, match=rf"^hdfs://127\.0\.0\.1:9/x: {message}"):
        fs.resolve("hdfs://127.0.0.1:9/x", options)


def test_paths_and_roots() -> None:
    for url, path in (("hdfs://h:1/a/b/", "/a/b"), ("hdfs://h:1", "/"), ("viewfs://h/a b#c?d%20", "/a b#c?d%20")):
        filesystem, found = fs.resolve(url)
        assert found == path
        assert filesystem._strip_protocol(url) == path
        assert filesystem._strip_protocol([url]) == [path]


def test_where_the_namenode_is_asked() -> None:
    web = block_locations.web_addresses
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
    assert hadoop_conf.hadoop_settings() == {}
    etc = tmp_path / "etc/hadoop"
    etc.mkdir(parents=True)
    text = "<configuration><property><name> a.b </name><value>c</value></property></configuration>"
    (etc / "core-site.xml").write_text(text)
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    assert hadoop_conf.hadoop_settings() == hadoop_conf.hadoop_settings(str(etc)) == {"a.b": "c"}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Listen as the web server of a NameNode."""
    monkeypatch.setattr(block_locations, "_SILENT_UNTIL", {})
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


def test_the_public_answer_of_webhdfs(monkeypatch: pytest.MonkeyPatch, web: str) -> None:
    asked: list[str] = []
    block = {"hosts": ["a", "b"], "offset": 5, "length": 7, "names": ["10.0.0.1:9866"], "corrupt": False}

    def answer(_: Any, url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(json.dumps({"BlockLocations": {"BlockLocation": [block]}}).encode())

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", answer)
    found = block_locations.block_locations([web], "/a b", 9, "me")
    assert found == [{"hosts": ["a", "b"], "offset": 5, "length": 7}]
    assert asked == [f"{web}webhdfs/v1/a%20b?op=GETFILEBLOCKLOCATIONS&offset=0&length=9&user.name=me"]


@pytest.mark.parametrize("error", [http.client.BadStatusLine("what?"), ConnectionRefusedError(), ValueError("no JSON")])
def test_where_webhdfs_does_not_answer_there_are_no_locations(
    monkeypatch: pytest.MonkeyPatch, web: str, error: Exception
) -> None:
    asked: list[str] = []

    def answer(_: Any, url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        raise error

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", answer)
    for _ in range(3):
        assert block_locations.block_locations([web], "/a", 9, "me") == []
    assert len(asked) == 1


def test_a_web_port_that_drops_packets_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_locations, "_SILENT_UNTIL", {})
    tried: list[Any] = []

    def connect(address: Any, timeout: float) -> None:
        tried.append(address)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", connect)
    for _ in range(3):
        assert block_locations.block_locations(["http://nn:9870", "http://nn:50070"], "/a", 9, "me") == []
    assert tried == [("nn", 9870), ("nn", 50070)]


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr(getpass, "getuser", unknown)
    assert hadoop_conf.user_name() == str(os.getuid())


def test_threads_share_the_connection_of_their_process() -> None:
    url, found = "hdfs://127.0.0.1:9/x", list[Any]()

    def resolve() -> None:
        found.append(fs.resolve(url)[0]._connection)

    threads = [threading.Thread(target=resolve) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is found[2]
    assert fs.resolve(url, {"dfs.replication": 1})[0]._connection is not found[0]


def test_other_filesystems_have_no_locations(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    assert fs.get_block_locations(str(tmp_path / "file")) == []


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (
            RuntimeError(
                'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=bob, '
                'access=WRITE, inode=\\"/data\\":ann:staff:drwxr-xr-x\\n\\tat x")'
            ),
            PermissionError,
            'AccessControlException: Permission denied: user=bob, access=WRITE, inode="/data":ann:staff:drwxr-xr-x',
        ),
        (
            RuntimeError('RPCError("org.apache.hadoop.fs.FileAlreadyExistsException", "there")'),
            FileExistsError,
            "FileAlreadyExistsException: there",
        ),
        (FileNotFoundError("gone\n\tat org.apache.hadoop"), FileNotFoundError, "gone"),
        (RuntimeError("DataTransferError(x)"), OSError, "DataTransferError(x)"),
        (
            RuntimeError('IOError(Os { code: 111, kind: ConnectionRefused, message: "Connection refused" })'),
            OSError,
            "IOError: Connection refused",
        ),
        (
            RuntimeError('InvalidArgument("Kerberos principal is required")'),
            OSError,
            "InvalidArgument: Kerberos principal is required",
        ),
        (
            RuntimeError('ErasureCodingError("not enough shards")'),
            OSError,
            f"ErasureCodingError: not enough shards{NOT_RESTORED}",
        ),
    ],
)
def test_errors_lose_their_java_stack_and_gain_a_number(raised: Exception, kind: type[OSError], said: str) -> None:
    error = os_error(raised, "hdfs://nn/x")
    assert type(error) is kind
    assert error.errno
    assert str(error) == f"hdfs://nn/x: {said}"


def _gssapi(said: str) -> RuntimeError:
    codes = 'GssMajorCodes { raw: "0x000d0000", routine_error: "GSS_S_FAILURE" }'
    return RuntimeError(f'GSSAPIError({codes}, 2529638944, "{said}")')


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "No credentials were supplied, or the credentials were unavailable or inaccessible: No Kerberos "
            "credentials available (default cache: FILE:/tmp/krb5cc_0)",
            "No Kerberos credentials available (default cache: FILE:/tmp/krb5cc_0)",
        ),
        ("Unspecified GSS failure.  Minor code may provide more information: Ticket expired", "Ticket expired"),
    ],
)
def test_a_missing_kerberos_ticket_is_an_error_that_is_not_tried_again(said: str, reason: str) -> None:
    connection = HdfsConnection("hdfs://nn", {"hadoop.security.authentication": "kerberos"}, None, {})

    def refuse() -> None:
        raise _gssapi(said)

    with pytest.raises(PermissionError, match="Kerberos") as caught:
        connection.guarded("/x", None, refuse)
    assert caught.value.errno == errno.EACCES
    assert str(caught.value).startswith(f"hdfs://nn/x: Kerberos: {reason}. Get a ticket with kinit")


def test_datanodes_that_fail_are_named_with_what_a_secured_cluster_may_need() -> None:
    node = (
        'DatanodeInfoProto {{ id: DatanodeIdProto {{ ip_addr: \\"10.0.0.{0}\\", host_name: \\"n\\", xfer_port: 98 }} }}'
    )
    nodes = ", ".join(node.format(number) for number in (2, 1))
    connection = HdfsConnection("hdfs://nn", {"hadoop.security.authentication": "kerberos"}, None, {})

    def fail() -> None:
        raise RuntimeError(f'DataTransferError("All DataNodes failed: [{nodes}]")')

    with pytest.raises(OSError, match=r"^hdfs://nn/x, offset 0: All DataNodes failed: 10.0.0.1:98, 10.0.0.2:98. ") as e:
        connection.guarded("/x", 0, fail)
    assert e.value.errno == errno.EIO
    assert "dfs.data.transfer.protection" in str(e.value)


def test_a_kdc_that_does_not_answer_is_tried_again() -> None:
    error = os_error(
        _gssapi("Unspecified GSS failure.  Minor code: Cannot contact any KDC for realm 'R'"), "hdfs://nn/x"
    )
    assert error.errno == errno.EIO


@pytest.mark.parametrize(("secure", "has_hint"), [("simple", True), ("kerberos", False)])
def test_a_connection_that_is_closed_at_once_hints_at_kerberos(secure: str, has_hint: bool) -> None:
    config = {"hadoop.security.authentication": secure}
    connection = HdfsConnection("hdfs://nn", config, None, {})

    def refuse() -> None:
        raise RuntimeError("RPC listener disconnected")

    with pytest.raises(OSError, match="RPC listener disconnected") as caught:
        connection.guarded("/x", None, refuse)
    assert ("HADOOP_CONF_DIR" in str(caught.value)) == has_hint
    assert connection.guarded("/x", None, lambda: 1) == 1
    with pytest.raises(OSError, match=r"disconnected$") as caught:
        connection.guarded("/x", None, refuse)
    assert caught.value.errno == errno.EIO


def test_errors_do_not_show_delegation_tokens() -> None:
    with pytest.raises(DataError, match=r"^hdfs://nn/x: http://nn/webhdfs/v1/x\?delegation=\*\*\*&offset=0$"):
        with fs.errors_name("hdfs://nn/x"):
            raise OSError("http://nn/webhdfs/v1/x?delegation=HgAFYWxpY2U&offset=0")


def test_webhdfs_writes_a_file_in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("requests")
    options = {"client": "webhdfs", "http": "http://127.0.0.1:9"}
    filesystem, _ = fs.resolve("hdfs://127.0.0.1:9/x.csv", options)
    written, calls = [], []
    monkeypatch.setattr(filesystem, "put_file", lambda local, path: written.append(path))
    monkeypatch.setattr(filesystem, "_call", lambda op, **given: calls.append((op, given["path"])))
    fs.write_atomic("hdfs://127.0.0.1:9/x.csv", b"1", storage_options=options)
    assert written[0].startswith("/")
    assert calls == [("MKDIRS", "/"), ("RENAME", written[0])]
