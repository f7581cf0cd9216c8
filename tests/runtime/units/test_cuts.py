"""Checkpoints of several worker groups are consistent cuts: servers are counted, and runs go on from each of them."""

from __future__ import annotations

import copy
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from singa_dask.comm.message import Message
from singa_dask.conf import JobConf
from singa_dask.errors import CheckpointError
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.manifest import encode_manifest
from singa_dask.runtime.units.server import Server
from tests.runtime.harness import DOWNPOUR, HOGWILD, Outcome, mlp
from tests.runtime.replacing import Applied, count_updates
from tests.selection import circles

Run = Callable[..., Outcome]

N_STEPS = 20
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "downpour": {**DOWNPOUR, "nworker_groups": 3},
    "two servers": {"nworker_groups": 2, "nservers_per_group": 2, "server_worker_separate": True},
    "groups of two": {"nworker_groups": 2, "nworkers_per_group": 2, "nservers_per_group": 2},
    "one process": {"nworker_groups": 2, "nworkers_per_procs": 2},
    "hogwild": {**HOGWILD, "nworker_groups": 3, "nserver_groups": 3, "sync_freq": 7},
    "hybrid": {
        "nworker_groups": 4, "nserver_groups": 2, "nservers_per_group": 2, "sync_freq": 3, "nworkers_per_procs": 2,
    },
}  # fmt: skip


def job(name: str, **changes: Any) -> JobConf:
    cluster = {"snapshot_freq": 0, **TOPOLOGIES[name], **changes.pop("cluster", {})}
    return mlp(train_steps=N_STEPS, cluster=cluster, **changes)


@pytest.fixture
def jitter(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that disturbs the schedule of all servers from a seed."""

    def disturb(seed: int) -> None:
        random, real = Random(seed), Server.handle

        def late(server: Server, message: Message) -> list[Message]:
            if random.random() < 0.05:
                time.sleep(random.random() * 0.01)
            return real(server, message)

        monkeypatch.setattr(Server, "handle", late)

    return disturb


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[Server, Applied]:
    return count_updates(monkeypatch)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, counted: dict[Server, Applied]) -> list[tuple[Server, dict[Any, int]]]:
    """Return what each server has applied whenever it takes a copy: the number of steps of each slice and group."""
    taken: list[tuple[Server, dict[Any, int]]] = []
    real = Server.copy_slices

    def counting(server: Server) -> Any:
        taken.append((server, {key: len(steps) for key, steps in counted[server].items()}))
        return real(server)

    monkeypatch.setattr(Server, "copy_slices", counting)
    return taken


def manifests(url: str) -> dict[int, dict[str, Any]]:
    """Return the manifests of all checkpoints of a run by step."""
    return {
        step: json.loads(Path(found, "manifest.json").read_text()) for step, found in lookup.find_steps(url).items()
    }


def positions(manifest: dict[str, Any]) -> dict[int, int]:
    return {int(group): position["step"] for group, position in manifest["groups"].items()}


def by_slice(counted: dict[Server, Applied]) -> dict[tuple[int, int], list[int]]:
    """Return the steps of each slice and worker group, which one server applies; other server groups get changes."""
    found = defaultdict(list)
    for applied in counted.values():
        for key, steps in applied.items():
            found[key] += steps
    return found


@pytest.mark.parametrize("name", circles(TOPOLOGIES, long=5))
@pytest.mark.parametrize("seed", circles(range(6)))
def test_each_checkpoint_of_a_calm_run_has_the_gradients_before_the_positions(
    run_job: Run, jitter: Callable[[int], None], copies: list[Any], name: str, seed: int
) -> None:
    jitter(seed)
    outcome = run_job(job(name, checkpoint_freq=4))
    found = manifests(outcome.url)
    assert sorted(found) == [*range(4, N_STEPS, 4), N_STEPS]
    n_servers = TOPOLOGIES[name].get("nservers_per_group", 1)
    for index, step in enumerate(sorted(found)):
        at = positions(found[step])
        assert at[0] == step
        for server, applied in copies[index * n_servers : (index + 1) * n_servers]:
            assert {group for _, group in applied} <= set(at)
            for (_, group), n in applied.items():
                assert n == at[group], (server.address, step)
        for part in found[step]["parts"]:
            for tensor in part["tensors"]:
                if tensor["what"] == "value":
                    assert {int(group): n + 1 for group, n in tensor["applied"].items()} == at
    assert set(positions(found[N_STEPS]).values()) == {N_STEPS}


@pytest.mark.parametrize(
    "name", circles(["one process", "downpour", "hybrid", "two servers", "groups of two", "hogwild"], long=2)
)
def test_a_run_that_goes_on_from_any_checkpoint_applies_each_step_once(
    run_job: Run, counted: dict[Server, Applied], name: str
) -> None:
    calm = run_job(job(name, checkpoint_freq=7))
    whole, wanted = by_slice(counted), manifests(calm.url)
    assert all(steps == list(range(N_STEPS)) for steps in whole.values())
    for step in sorted(wanted)[:-1]:
        counted.clear()
        at = positions(wanted[step])
        resumed = run_job(job(name), resume=lookup.find_steps(calm.url)[step])
        found = by_slice(counted)
        for number, group in whole:
            assert found[number, group] == list(range(at[group], N_STEPS))
        for one, other in zip(wanted[N_STEPS]["parts"], manifests(resumed.url)[N_STEPS]["parts"], strict=True):
            assert [(each["key"], each["version"]) for each in one["tensors"]] == [
                (each["key"], each["version"]) for each in other["tensors"]
            ]


def test_a_checkpoint_that_is_no_cut_is_said_to_be_none(run_job: Run) -> None:
    """A value without the last gradient of a group, a group that is elsewhere, and a slice without any gradient."""
    outcome = run_job(job("two servers"))
    url, manifest = lookup.find(outcome.url), manifests(outcome.url)[N_STEPS]
    Checkpoint(url).verify()

    def check_refused(damage: Callable[[dict[str, Any]], None]) -> None:
        changed = copy.deepcopy(manifest)
        damage(changed)
        parts, facts = changed.pop("parts"), changed
        del facts["sha256"]
        Path(url, "manifest.json").write_bytes(encode_manifest(parts, facts))
        with pytest.raises(
            CheckpointError, match=rf"step-{N_STEPS}: not a consistent cut: worker group \d is before step \d+, fc"
        ):
            Checkpoint(url).verify()

    def values(of: dict[str, Any]) -> list[dict[str, Any]]:
        return [each for part in of["parts"] for each in part["tensors"] if each["what"] == "value"]

    check_refused(lambda changed: values(changed)[-1]["applied"].update({"1": N_STEPS - 2}))
    check_refused(lambda changed: changed["groups"]["1"].update(step=N_STEPS - 1))
    check_refused(lambda changed: values(changed)[0].pop("applied"))
