"""Jobs of many processes: gradients are summed on their way, and all messages go from neighbour to neighbour."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from singa_dask.comm import tree
from singa_dask.comm.message import Address, Message
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.runtime.units.router import Router
from singa_dask.runtime.units.unit_host import UnitHost
from tests.runtime import harness
from tests.runtime.harness import Outcome, mlp
from tests.runtime.units.test_ends import MANY, states, stop_at, with_trap
from tests.runtime.units.test_profile import PROFILE, profiled
from tests.selection import circles

Run = Callable[..., Outcome]
DIRECT = 1000


def job(n_workers: int, cluster: dict[str, Any] | None = None, **changes: Any) -> JobConf:
    """Return the small job for a group of workers, by default each with a server in a process of its own."""
    of = mlp().model_dump(mode="json")
    net = changes.pop("neuralnet", of["neuralnet"])
    net["layer"][0]["store_conf"]["batchsize"] = [3 * n_workers]
    cluster = {"nworkers_per_group": n_workers, "nservers_per_group": n_workers, **(cluster or {})}
    return JobConf.model_validate({**of, "train_steps": 6, "cluster": cluster, "neuralnet": net, **changes})


def bits(outcome: Outcome) -> dict[str, bytes]:
    assert set(states(outcome).values()) == {"done"}
    return {name: values.tobytes() for name, values in outcome.params().items()}


@pytest.fixture
def least(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the least number of processes for which sums are computed on the way."""
    return lambda n: monkeypatch.setattr(tree, "MIN_PROCESSES", n)


SHAPES = {
    "5": (5, {}),
    "8": (8, {}),
    "the last has fewer": (11, {"nworkers_per_procs": 2, "nservers_per_group": 3}),
    "servers apart": (9, {"nservers_per_group": 2, "server_worker_separate": True}),
    "memory is not shared": (6, {"share_memory": False}),
    "one server": (6, {"nservers_per_group": 1}),
    "two in a process": (12, {"nworkers_per_procs": 2, "nservers_per_procs": 2}),
    "2": (2, {}), "3": (3, {}), "4": (4, {}), "13": (13, {}), "16": (16, {}),
}  # fmt: skip


@pytest.mark.parametrize("shape", circles(SHAPES, long=1))
def test_bits_are_those_of_one_process_and_of_a_direct_exchange(
    run_job: Run, least: Callable[[int], None], shape: str
) -> None:
    n, cluster = SHAPES[shape]
    least(DIRECT)
    direct = bits(run_job(job(n, cluster, train_steps=4)))
    alone = {**cluster, "nworkers_per_procs": n, "nservers_per_procs": n}
    assert bits(run_job(job(n, alone, train_steps=4))) == direct
    least(2)
    assert bits(run_job(job(n, cluster, train_steps=4))) == direct


@pytest.mark.parametrize("n", circles([4, 8, 16], long=1))
def test_messages_bytes_and_connections(
    run_job: Run, least: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """From the start to the last checkpoint a process talks to its neighbours alone."""
    counts: Counter[tuple[str, int]] = Counter()
    n_bytes: Counter[int] = Counter()
    peers: dict[str, set[str]] = defaultdict(set)
    lock, real = threading.Lock(), Transport.send

    def send(self: Transport, address: str, message: Message) -> None:
        parts = message.parts or (message,)
        with lock:
            peers[self.address].add(address)
            if parts[0].kind in ("reduce", "gather") and parts[0].step >= 0:
                counts[self.address, parts[0].step] += 1
                n_bytes[parts[0].step] += message.n_bytes
        real(self, address, message)

    monkeypatch.setattr(Transport, "send", send)
    least(2)
    outcome = run_job(job(n, {"snapshot_freq": 2}, checkpoint_freq=3, test_freq=2, test_steps=1))
    assert set(states(outcome).values()) == {"done"}
    height = n.bit_length() - 1
    assert {len(those) for those in peers.values()} == {height}
    n_params = sum(values.size for values in outcome.params().values())
    assert n_bytes == dict.fromkeys(range(6), 2 * (n - 1) * 4 * n_params)
    assert len(counts) == 6 * n
    assert max(counts.values()) <= 2 * height


@pytest.mark.long
def test_a_run_that_is_stopped_goes_on_from_its_checkpoint(run_job: Run) -> None:
    stopped = run_job(job(5, train_steps=MANY), on_event=stop_at(3))
    assert set(states(stopped).values()) == {"done"}
    (step,) = {report["step"] for unit, report in stopped.reports.items() if unit.startswith("worker")}
    whole = run_job(job(5, train_steps=12))
    rest = run_job(job(5, train_steps=12), resume=f"{stopped.url}/checkpoint/step-{step}")
    assert bits(rest) == bits(whole)


def test_a_failure_is_told_to_all(run_job: Run) -> None:
    net = with_trap(how="raise-in-gradient", step=3, group=0, worker=4)
    outcome = run_job(job(5, train_steps=MANY, neuralnet=net))
    failed = outcome.reports.pop("worker-0-4")
    assert failed["state"] == "failed"
    assert set(states(outcome).values()) == {"aborted"}
    assert {report["reason"] for report in outcome.reports.values()} == {failed["reason"]}


@pytest.mark.long
@pytest.mark.parametrize("lost", circles([1, 0, 6]))
def test_a_lost_process_ends_all_others(run_job: Run, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    monkeypatch.setattr(harness, "Transport", partial(Transport, retry_s=3.0))

    def lose(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "metrics" and (event["step"], event["worker"]) == (3, lost):
            transport = hosts[lost].router.transport
            assert transport is not None
            transport.close()
            hosts[lost].abort({"reason": "killed"}, tell=False)
            # it may have acknowledged all that it was sent, and whoever waits for its answers does not send more
            neighbour = hosts[lost ^ 1].router.transport
            assert neighbour is not None
            neighbour.send(transport.address, Message("stop", Address.stub(lost ^ 1), Address.stub(lost)))

    outcome = run_job(job(8, train_steps=MANY), on_event=lose)
    assert set(states(outcome).values()) == {"aborted"}
    others = {report["reason"] for unit, report in outcome.reports.items() if not unit.endswith(f"-{lost}")}
    assert others
    assert all(reason.startswith(f"process {lost} at ") for reason in others)


@pytest.mark.long
def test_a_process_passes_on_what_comes_before_it_knows_the_others(
    run_job: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process 2, which starts last, is between 3 and 0."""
    came, real, connect = threading.Event(), Router.receive, Router.connect

    def receive(self: Router, message: Message) -> None:
        real(self, message)
        if message.kind == "hello" and not self.peers:
            came.set()

    def late(self: Router, peers: list[str]) -> None:
        if self._process != 2:
            connect(self, peers)
            return
        threading.Thread(target=lambda: (came.wait(harness.TIMEOUT_S), connect(self, peers))).start()

    monkeypatch.setattr(Router, "receive", receive)
    monkeypatch.setattr(Router, "connect", late)
    assert set(states(run_job(job(6))).values()) == {"done"}
    assert came.is_set()


@pytest.mark.long
def test_arrows_of_a_profile_join_the_ends_of_each_message(run_job: Run) -> None:
    found = profiled(run_job(job(6, profile=PROFILE, train_steps=8)))
    spans = [(process, span) for process, all_of in found.items() for span in all_of if span[2] == "message"]
    ends: dict[str, dict[str, Any]] = {"out": {}, "in": {}}
    for _, (_, name, _, _, _, facts, arrow) in spans:
        way, _, which = arrow.partition(" ")
        ends[way][which] = name, facts
    assert ends["out"] == ends["in"]
    assert {name for name, _ in ends["out"].values()} >= {"reduce", "gather"}
