"""The scripts of examples/deploy, as far as this machine can: batch jobs here, SSH and a gateway on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from distributed.cli import dask_scheduler, dask_worker

from tests.ports import free_port
from tests.runtime.processes import ROOT, TIMEOUT_S, kill_group, wait_until

DEPLOY = ROOT / "examples" / "deploy"
JOB = ["configs/digits/mlp.yaml", "allreduce"]


def run(script: str, *arguments: str, folder: Path) -> None:
    """Run a script; the job that it starts has to end well, on two processes."""
    command = [sys.executable, str(DEPLOY / script), *arguments, "--run-dir", str(folder / "run")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false"}
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said, start_new_session=True)
        try:
            code = process.wait(TIMEOUT_S)
        finally:
            kill_group(process)
    assert code == 0, (folder / "said").read_text()
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert (summary["state"], len(summary["topology"]["processes"])) == ("done", 2)
    assert summary["bytes"]["sent"] > 0


@pytest.mark.soak
@pytest.mark.cluster
def test_workers_as_batch_jobs(tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue", reason="starts the workers of this test")
    run("on_batch.py", "local", *JOB, folder=tmp_path)


@contextmanager
def ssh_server() -> Iterator[int]:
    """Serve SSH on loopback, for everyone: run commands; yield the port."""
    asyncssh = pytest.importorskip("asyncssh", reason="connects to the hosts of this test")

    class Open(asyncssh.SSHServer):  # type: ignore[misc,name-defined]
        def begin_auth(self, username: str) -> bool:
            return False

    async def serve(process: Any) -> None:
        child = await asyncio.create_subprocess_shell(
            process.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )

        async def pass_on(source: Any, to: Any) -> None:
            while data := await source.read(1 << 14):
                to.write(data.decode())

        children.append(child)
        await asyncio.gather(pass_on(child.stdout, process.stdout), pass_on(child.stderr, process.stderr))
        process.exit(await child.wait())

    async def listen() -> Any:
        key = asyncssh.generate_private_key("ssh-ed25519")
        return await asyncssh.create_server(Open, "127.0.0.1", 0, server_host_keys=[key], process_factory=serve)

    children: list[asyncio.subprocess.Process] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(TIMEOUT_S)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:

        async def close() -> None:
            server.close()
            for child in children:  # SSHCluster leaves them to the end of its connections
                if child.returncode is None:
                    os.killpg(child.pid, signal.SIGKILL)
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), loop).result(TIMEOUT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.cluster
@pytest.mark.long
def test_workers_by_ssh(tmp_path: Path) -> None:
    with ssh_server() as port:
        connect = json.dumps({"port": port, "known_hosts": None})
        run("on_ssh.py", *JOB, *["127.0.0.1"] * 3, "--connect", connect, folder=tmp_path)


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[str, str]]:
    """Start a gateway whose clusters are processes of this machine; yield its address, and that of its proxy."""
    for name in ("dask_gateway", "dask_gateway_server", "sqlalchemy"):
        pytest.importorskip(name, reason="makes the clusters of this test")
    web, proxy, api, own = (free_port() for _ in range(4))
    (folder / "config.py").write_text(
        f"""
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.address = "127.0.0.1:{own}"
c.Proxy.address, c.Proxy.tcp_address, c.Proxy.api_address = "127.0.0.1:{web}", "127.0.0.1:{proxy}", "127.0.0.1:{api}"
c.UnsafeLocalBackend.clusters_directory = "{folder}/clusters"
c.UnsafeLocalBackend.sigint_timeout = 1
c.ClusterConfig.worker_cores = 2
"""
    )
    command = [sys.executable, "-m", "dask_gateway_server", "--config", str(folder / "config.py")]
    # its clusters inherit these; it calls dask-scheduler and dask-worker by their names
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: "routes" in (folder / "log").read_text().lower(), "the gateway is there")
        yield f"http://127.0.0.1:{web}", f"gateway://127.0.0.1:{proxy}"
    finally:
        server.terminate()
        server.wait(TIMEOUT_S)
        kill_group(server)


@pytest.mark.soak
@pytest.mark.cluster
def test_workers_of_a_gateway(tmp_path: Path) -> None:
    with gateway(tmp_path) as (address, proxy):
        run("on_gateway.py", address, *JOB, "--proxy", proxy, "--auth", "basic", folder=tmp_path)


def test_workers_in_pods_have_a_thread_for_each_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_kubernetes", reason="describes the cluster of this test")
    monkeypatch.syspath_prepend(str(DEPLOY))
    spec = import_module("on_kubernetes").spec_of("image", 3, 2, "4Gi")
    (worker,) = spec["spec"]["worker"]["spec"]["containers"]
    assert (spec["spec"]["worker"]["replicas"], worker["args"][0], worker["args"][-2:]) == (
        3, "dask-worker", ["--nthreads", "2"],
    )  # fmt: skip


def test_options_of_scripts_are_those_of_dask() -> None:
    text = (DEPLOY / "on_yarn.sh").read_text()
    for role, command in (("scheduler", dask_scheduler), ("worker", dask_worker)):
        known = CliRunner().invoke(command.main, ["--help"]).stdout
        (line,) = re.findall(rf"-m dask {role}.*", text)
        assert set(re.findall(r"--[\w-]+", line)) <= set(re.findall(r"--[\w-]+", known))
    subprocess.run(["bash", "-n", str(DEPLOY / "on_yarn.sh")], check=True)
