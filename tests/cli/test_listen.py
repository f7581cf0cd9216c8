"""``run --listen``: network interface and ports of a job's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask.cli.job import read
from singa_dask.cli.run import sets_of_listen
from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("text", "interface", "ports"),
    [
        (None, "", ""),
        ("eth1", "eth1", ""),
        ("eth1:9000-9100", "eth1", "9000-9100"),
        (":9000", "", "9000"),
        ("10.0.0.7:9000-9100", "10.0.0.7", "9000-9100"),
        ("0.0.0.0", "0.0.0.0", ""),
        ("[fe80::1]:9000", "fe80::1", "9000"),
        ("[::]", "::", ""),
    ],
)
def test_it_is_the_same_as_the_keys_of_the_job(job: Path, text: str | None, interface: str, ports: str) -> None:
    listen = read(str(job), sets_of_listen(text), None).job.cluster.listen
    assert (listen.interface, listen.ports) == (interface, ports)


@pytest.mark.parametrize(
    ("text", "words"),
    [("::1", "IPv6 address in brackets"), ("a:b:c", "INTERFACE[:PORTS]"), ("eth1:9100-9000", "from 1 to 65535")],
)
def test_what_is_no_interface_and_no_ports_is_told(call: Call, job: Path, text: str, words: str) -> None:
    result = call("run", job, "--listen", text)
    assert result.exit_code == 2
    assert words in result.stderr
