"""A secured HDFS: Kerberos by a real KDC, delegation tokens, and encryption of what is sent."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores import open_store
from singa_dask.errors import DataError
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.contracts.records import assert_same, pixels, read_all, written
from tests.converting import convert
from tests.hdfs.cluster import READY_WITHIN_S
from tests.hdfs.conftest import start_or_skip
from tests.hdfs.epochs import check_epoch
from tests.hdfs.kdc import REALM, Kdc
from tests.hdfs.secured import PRINCIPALS, SecuredHdfs
from tests.hdfs.test_jobs import DIGITS, on
from tests.runtime.ahead import read_little_ahead
from tests.runtime.harness import ALLREDUCE
from tests.runtime.processes import cluster, driver_of, wait_until

# Java's 3DES, which is what it takes by default, is ten times slower.
AES = {"dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding"}
FETCH = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
DATA = np.random.default_rng(1).bytes((5 << 20) // 2)
NO_TICKET = "Kerberos: No Kerberos credentials available"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    made = start_or_skip(lambda: Kdc(tmp_path_factory.mktemp("kdc") / "kdc", PRINCIPALS))
    with made as kdc, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(kdc.config))
        patch.setenv("KRB5CCNAME", str(kdc.folder / "ticket"))
        kdc.kinit("alice", kdc.folder / "ticket")
        yield kdc


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, kdc: Kdc) -> Iterator[SecuredHdfs]:
    """Start an HDFS that takes only what is encrypted, and set the environment of a user with a ticket."""
    folder = tmp_path_factory.mktemp("secured") / "hdfs"
    made = start_or_skip(lambda: SecuredHdfs(folder, kdc, "privacy", AES, ("node-a", "node-b")))
    with made as secured, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(folder / "conf"))
        fs.write_atomic(f"{secured.url}/data", DATA)
        yield secured


@pytest.mark.long
def test_files_are_read_and_written_by_a_ticket_and_by_a_keytab(secured: SecuredHdfs, kdc: Kdc) -> None:
    url = f"{secured.url}/data"
    assert fs.ls(secured.url) == ["data"]
    assert fs.read_bytes(url) == DATA
    bob = {"kerberos_principal": f"bob@{REALM}", "kerberos_keytab": str(kdc.keytab("bob"))}
    assert fs.read_bytes(url, storage_options=bob) == DATA
    with pytest.raises(DataError, match=r"AccessControlException.*user=bob, access=WRITE"):
        fs.write_atomic(f"{secured.url}/of-bob", b"1", bob)


@pytest.mark.long
def test_records_are_converted(secured: SecuredHdfs, tmp_path: Path) -> None:
    records, target = pixels(500, (4, 5)), f"{secured.url}/converted/x.arrow"
    convert("arrow", [written(tmp_path, "arrow", records, "source")], target)
    with open_store(target) as store:
        assert_same(read_all(store), records)


@pytest.mark.soak
@pytest.mark.cluster
def test_a_job_on_two_dask_workers(secured: SecuredHdfs, tmp_path: Path) -> None:
    digits, results = f"{secured.url}/digits.arrow", []
    fs.write_atomic(digits, DIGITS.read_bytes())
    with cluster(tmp_path, "--no-nanny") as (_, client):
        for path, run in ((str(DIGITS), str(tmp_path / "run")), (digits, f"{secured.url}/run")):
            fs.makedirs(run)
            job = on(path, ALLREDUCE, checkpoint_freq=4)
            result = driver_of(job, client, run_url=run, on_event=lambda event: None, job_id=f"of-{len(results)}").run()
            assert result.state == "done", result
            results.append({name: stored.values for name, stored in load_values(run).items()})
    assert results[0].keys() == results[1].keys()
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.soak
def test_a_ticket_is_renewed_in_mid_epoch(
    secured: SecuredHdfs, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "short"
    kdc.kinit("alice", cache)
    options = {"kerberos_principal": f"alice@{REALM}", "kerberos_cache": str(cache)}

    def harm() -> None:
        secured.kill("namenode")
        kdc.kinit("alice", cache, "-l", "1s")
        wait_until(lambda: _is_expired(kdc, cache), "the ticket has expired", READY_WITHIN_S)
        secured.restart_killed()
        wait_until(secured.is_ready, "the NameNode is there again", READY_WITHIN_S)
        with pytest.raises(DataError, match=r"Kerberos: Ticket expired\. Get a ticket with kinit"):
            fs.read_bytes(f"{secured.url}/data", storage_options=options)
        kdc.kinit("alice", cache)
        assert fs.read_bytes(f"{secured.url}/data", storage_options=options) == DATA

    read_little_ahead(monkeypatch.setattr)
    check_epoch(f"{secured.url}/epoch.arrow", harm, options)


def _is_expired(kdc: Kdc, cache: Path) -> bool:
    return subprocess.run(["klist", "-s", "-c", str(cache)], env=kdc.environment()).returncode != 0


@pytest.mark.soak
def test_a_keytab_outlives_its_tickets(secured: SecuredHdfs, kdc: Kdc) -> None:
    kdc.run("kadmin.local", text="modprinc -maxlife 2seconds bob")
    bob = {"kerberos_principal": f"bob@{REALM}", "kerberos_keytab": str(kdc.keytab("bob"))}
    kdc.kinit("bob", kdc.folder / "watched")
    is_over, n = False, 0
    while not is_over:
        is_over, n = _is_expired(kdc, kdc.folder / "watched"), n + 1
        # each is a connection of its own, which needs a ticket
        assert fs.read_bytes(f"{secured.url}/data", storage_options={**bob, "deadline_s": 20 + n}) == DATA


@pytest.mark.long
def test_a_delegation_token_reads_without_a_ticket(
    secured: SecuredHdfs, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token = f"{secured.url}/data", tmp_path / "token"
    _run([*secured.tool(FETCH), "--renewer", "alice", str(token)])
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "none"))
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(token))
    assert fs.read_bytes(url) == DATA
    # the token names the service by its number
    by_name = url.replace("127.0.0.1", "localhost")
    with pytest.raises(DataError, match=rf"{NO_TICKET}.*{token} has no token for the service localhost:\d+ that"):
        fs.read_bytes(by_name)
    content = token.read_bytes()
    token.write_bytes(content.replace(b"127.0.0.1:", b"localhost:"))
    assert fs.read_bytes(by_name) == DATA
    token.write_bytes(content)
    monkeypatch.setenv("KRB5CCNAME", str(kdc.folder / "ticket"))
    _run([*secured.tool(FETCH), "--cancel", str(token)])
    with pytest.raises(DataError, match=r"InvalidToken.*Write a new delegation token to .* with hdfs fetchdt\.$"):
        fs.read_bytes(url, storage_options={"deadline_s": 11})
    for content, said in ((b"no token", "not a file of this kind"), (None, "No such file or directory")):
        token.write_bytes(content) if content else token.unlink()
        with pytest.raises(DataError, match=rf"HADOOP_TOKEN_FILE_LOCATION: {token}: {said}, on host"):
            fs.read_bytes(url, storage_options={"deadline_s": 12 + len(said)})


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, rf"{NO_TICKET} .*Get a ticket with kinit"),
        ({"kerberos_keytab": "alice"}, "Kerberos principal is required"),
        ({"kerberos_keytab": "none", "kerberos_principal": "alice"}, "none.keytab: No such file or directory, on host"),
        ({"kerberos_keytab": "bob", "kerberos_principal": "alice"}, r"Does the KDC know alice.* and does klist -kt"),
        ({"kerberos_cache": "ticket", "kerberos_principal": "bob"}, "does not match desired name"),
        ({"config_dir": "/", "deadline_s": 1}, "If it requires Kerberos, set HADOOP_CONF_DIR"),
    ],
)
def test_credentials_that_are_missing_or_wrong(
    secured: SecuredHdfs, kdc: Kdc, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(kdc.folder / "none"))
    places = {"kerberos_keytab": "{}.keytab", "kerberos_cache": "{}"}
    given = {
        name: str(kdc.folder / places[name].format(value)) if name in places else value
        for name, value in options.items()
    }
    if "kerberos_principal" in given:
        given["kerberos_principal"] += f"@{REALM}"
    with pytest.raises(DataError, match=rf"^{re.escape(secured.url)}[^\n]*{said}[^\n]*$"):
        fs.read_bytes(f"{secured.url}/data", storage_options=given)


@pytest.mark.long
def test_a_kdc_that_hangs_is_said_within_the_deadline(secured: SecuredHdfs, kdc: Kdc) -> None:
    options = {"kerberos_principal": f"alice@{REALM}", "kerberos_keytab": str(kdc.keytab("alice")), "deadline_s": 1}
    kdc.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(DataError, match=r"no answer within 1 s\. .* Does the KDC of Kerberos answer\?$"):
            fs.read_bytes(f"{secured.url}/data", storage_options=options)
    finally:
        kdc.process.send_signal(signal.SIGCONT)


@pytest.mark.soak
def test_files_are_read_and_written_with_encrypted_data_transfer(
    kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**AES, "dfs.encrypt.data.transfer": "true", "dfs.replication": 1}
    with SecuredHdfs(tmp_path / "hdfs", kdc, "authentication", settings, ("node-a",)) as encrypted:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "hdfs" / "conf"))
        fs.write_atomic(f"{encrypted.url}/data", DATA)
        assert fs.read_bytes(f"{encrypted.url}/data") == DATA
