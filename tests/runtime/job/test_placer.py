"""Where units are placed anew, who keeps their snapshots, and from which one they start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError
from singa_dask.runtime.job.state.placer import Placer, Roster, buddies_of
from singa_dask.runtime.job.state.replacement import processes_to_replace
from singa_dask.runtime.job.state.restarts import RestartPoints, Restarts
from singa_dask.runtime.job.state.suspects import Suspects
from singa_dask.runtime.planning.layout import Layout, plan_processes
from singa_dask.runtime.planning.worker_choice import WorkerFacts, place, place_again, share
from tests.runtime.job.test_job_state import CLUSTERS
from tests.selection import few_examples

LAYOUTS = {name: plan_processes(ClusterConf.model_validate(cluster)) for name, cluster in CLUSTERS.items()}
WORKERS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3), st.integers(0, 3)), max_size=10).map(
    lambda found: {
        f"w{i}": WorkerFacts(nthreads, min(busy, nthreads), f"host{host}", f"w{i}", False, True)
        for i, (nthreads, busy, host) in enumerate(found)
    }
)
NAMES = st.sampled_from(sorted(LAYOUTS))


def facts(*hosts: int, nthreads: int = 4, nanny: bool = False) -> dict[str, WorkerFacts]:
    """Return Dask workers on some hosts."""
    return {f"w{i}": WorkerFacts(nthreads, 0, f"host{h}", f"w{i}", nanny, True) for i, h in enumerate(hosts)}


def snapshot(step: int, *holders: list[str]) -> dict[str, Any]:
    """Return the manifest of a snapshot with a part for each list of holders."""
    parts = [{"file": f"step-{step}/part-{i}", "holders": each} for i, each in enumerate(holders)]
    return {"step": step, "parts": parts, "states": [], "groups": {"0": {"step": step}, "1": {"step": step + 2}}}


# -- placing -------------------------------------------------------------------------------------------------------


@few_examples(40)
@given(name=NAMES, workers=WORKERS, low=st.integers(1, 4), high=st.integers(1, 8), packed=st.booleans())
def test_all_units_are_placed_once_within_the_limits(
    name: str, workers: dict[str, WorkerFacts], low: int, high: int, packed: bool
) -> None:
    before = LAYOUTS[name]
    high = min(max(high, low), len(before.processes))
    low = min(low, high)
    try:
        layout, chosen = place_again(before, workers, [], (low, high), packed)
    except ClusterError:
        free = sum(each.nthreads > each.busy for each in workers.values())
        assert not packed or free < low
        return
    assert sorted(layout.units) == sorted(before.units)
    assert low <= len(layout.processes) <= high
    assert len(set(chosen)) == len(chosen) == len(layout.processes)
    assert all(workers[each].nthreads > workers[each].busy for each in chosen)


@given(name=NAMES, extra=st.integers(0, 3))
def test_processes_stay_where_they_are(name: str, extra: int) -> None:
    layout = LAYOUTS[name]
    n = len(layout.processes)
    before = [f"w{i}" for i in range(extra, n + extra)]
    limits = (1, n)
    _, chosen = place_again(layout, facts(*range(n + extra), nthreads=16), before, limits, packed=False)
    assert set(chosen) == set(before)


@few_examples(40)
@given(name=NAMES, workers=WORKERS, lost=st.sets(st.integers(0, 7), min_size=1, max_size=3), data=st.data())
def test_shared_dask_workers_have_a_thread_for_each_unit(
    name: str, workers: dict[str, WorkerFacts], lost: set[int], data: st.DataObject
) -> None:
    processes = LAYOUTS[name].processes
    layout = Layout(tuple(units for i, units in enumerate(processes) if i in lost) or processes, LAYOUTS[name].cluster)
    others = {each: data.draw(st.integers(0, 4)) for each in sorted(workers)[::2]}
    try:
        chosen = share(layout, workers, others)
    except ClusterError:
        return
    for address, each in workers.items():
        mine = sum(len(units) for units, where in zip(layout.processes, chosen, strict=True) if where == address)
        assert not mine or mine + each.busy + others.get(address, 0) <= each.nthreads


def test_replaced_processes_do_not_share_threads_that_are_taken() -> None:
    # two groups, each with two threads of its own; one is lost, and nobody comes
    layout = LAYOUTS["hogwild"]
    placer = Placer(layout, layout.cluster)
    with pytest.raises(ClusterError, match="no Dask worker has 2 free threads"):
        placer.place_some(0.0, facts(0, nthreads=2), [1], {"w0": 2})
    assert placer.place_some(0.0, facts(0, nthreads=4), [1], {"w0": 2}) == ["w0"]
    assert placer.place_some(0.0, facts(0, 1, nthreads=2), [1], {"w0": 2}) == ["w1"]


def test_a_nanny_has_some_seconds() -> None:
    layout = LAYOUTS["allreduce"]
    placer = Placer(layout, layout.cluster)
    both = facts(0, 1, nthreads=8, nanny=True)
    left = {"w0": both["w0"]}
    placer.look_at(both, ["w0", "w1"])
    placer.lose("w1", left)
    placer.begin(100.0)
    assert placer.place(101.0, left, ["w0", "w1"], print) is None
    assert placer.place(102.0, both, ["w0", "w1"], print) == (layout, ("w0", "w1"))
    placer.lose("w1", left)
    placer.begin(200.0)
    found = placer.place(206.0, left, ["w0", "w1"], print)
    assert found is not None
    assert found[1] == ("w0",)


def test_a_process_that_was_lost_alone_waits_for_its_nanny_too() -> None:
    layout = LAYOUTS["allreduce"]
    placer = Placer(layout, layout.cluster)
    both = facts(0, 1, nthreads=8, nanny=True)
    left = {"w0": both["w0"]}
    placer.look_at(both, ["w0", "w1"])
    placer.lose("w1", left)
    placer.begin(100.0)
    found = [placer.place_some(now, left, [1], {"w0": 1}) for now in (101.0, 106.0)]
    assert found == [None, ["w0"]]


def test_nobody_waits_for_dask_workers_for_ever() -> None:
    layout = LAYOUTS["allreduce"]
    placer = Placer(layout, layout.cluster)
    placer.begin(0.0)
    said: list[str] = []
    for now in (9.0, 10.0, 599.0):
        assert placer.place(now, {}, ["w0", "w1"], said.append) is None
    assert len(said) == 1
    with pytest.raises(ClusterError, match="Waited 600 s"):
        placer.place(600.0, {}, ["w0", "w1"], said.append)


@pytest.mark.parametrize("mine", [["w0"], ["w0", "w0"]])
def test_there_is_room_once_there_are_more_dask_workers(mine: list[str]) -> None:
    layout = LAYOUTS["allreduce"]
    placer = Placer(layout, layout.cluster)
    assert placer.room(0.0, facts(0), mine) == 0
    assert placer.room(1.0, facts(0, 1), mine) == 0
    assert placer.room(2.0, facts(0), mine) == 0  # only for a moment
    assert placer.room(3.0, facts(0, 1), mine) == 0
    assert placer.room(5.0, facts(0, 1), mine) == 2


def test_no_room_beyond_the_limit() -> None:
    cluster = ClusterConf.model_validate({**CLUSTERS["eight"], "elastic": {"max_processes": 3}})
    placer = Placer(plan_processes(cluster), cluster)
    for now in (0.0, 10.0):
        assert placer.room(now, facts(*range(8), nthreads=16), ["w0", "w1", "w2"]) == 0


# -- buddies -------------------------------------------------------------------------------------------------------


@few_examples(25)
@given(name=NAMES, workers=WORKERS, data=st.data())
def test_buddies_are_others_on_other_hosts_if_possible(
    name: str, workers: dict[str, WorkerFacts], data: st.DataObject
) -> None:
    layout = LAYOUTS[name]
    if not workers:
        return
    chosen = [data.draw(st.sampled_from(sorted(workers))) for _ in layout.processes]
    for worker, buddy in zip(chosen, buddies_of(Roster.of(0, layout, chosen), workers), strict=True):
        hosts = {each.host for address, each in workers.items() if address != worker}
        if not buddy:
            assert len(workers) == 1
            continue
        assert buddy != worker
        assert workers[buddy].host != workers[worker].host or hosts == {workers[worker].host}


def test_buddies_are_of_the_job_if_possible() -> None:
    roster = Roster.of(0, LAYOUTS["allreduce"], ["w0", "w1"])
    assert buddies_of(roster, facts(0, 0, 0)) == ["w1", "w0"]
    assert buddies_of(roster, facts(0, 0, 1)) == ["w2", "w2"]


@pytest.mark.parametrize("per_host", [(8,) * 16, (1,) * 10, (3, 1, 2, 2), (2, 2)])
def test_each_process_keeps_one_copy(per_host: tuple[int, ...]) -> None:
    hosts = [host for host, n in enumerate(per_host) for _ in range(n)]
    layout = plan_processes(ClusterConf(nworkers_per_group=len(hosts), nservers_per_group=len(hosts)))
    workers = facts(*hosts)
    buddies = buddies_of(Roster.of(0, layout, list(workers)), workers)
    assert sorted(buddies) == sorted(workers)
    assert all(workers[own].host != workers[buddy].host for own, buddy in zip(workers, buddies, strict=True))


# -- what is replaced --------------------------------------------------------------------------------------------------


@few_examples(25)
@given(name=NAMES, data=st.data())
def test_whole_groups_are_replaced(name: str, data: st.DataObject) -> None:
    layout = LAYOUTS[name]
    n = len(layout.processes)
    lost = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    found = processes_to_replace(layout, lost)
    if found is None:
        return
    assert lost <= set(found) < set(range(n))
    groups = [{unit.group for unit in units if unit.kind == "worker"} for units in layout.processes]
    gone = set().union(*(groups[p] for p in found))
    assert not any(groups[p] & gone for p in range(n) if p not in found)
    assert any(groups[p] for p in range(n) if p not in found)
    assert all(unit.kind == "worker" for p in found for unit in layout.processes[p])


# -- what an incarnation starts from ----------------------------------------------------------------------------------


def test_an_incarnation_starts_from_the_newest_that_is_complete() -> None:
    points = RestartPoints("file:///before")
    everybody = {"a", "b", "c"}
    assert points.newest(everybody) == (None, {"url": "file:///before"}, "its beginning")
    points.add_snapshot(10, snapshot(10, ["a", "b"], ["b", "c"]), everybody)
    points.add_snapshot(20, snapshot(20, ["a"], ["b", "c"]), everybody)
    assert points.newest(everybody)[0] == 20
    step, start, _ = points.newest({"b", "c"})
    assert step == 10
    assert [part["holders"] for part in start["manifest"]["parts"]] == [["b"], ["b", "c"]]
    points.add_checkpoint(15, "file:///15")
    points.add_checkpoint(5, "file:///5")  # late news
    assert points.newest({"b", "c"}) == (15, {"url": "file:///15"}, "the checkpoint of step 15")
    assert points.newest(everybody)[0] == 20


def test_another_dask_worker_at_the_same_address_has_no_parts() -> None:
    points = RestartPoints(None)
    points.add_snapshot(10, snapshot(10, ["a"], ["b"]), {"a", "b"})
    points.forget("a")
    assert points.newest({"a", "b"})[0] is None
    points.add_snapshot(20, snapshot(20, ["a", "b"], ["b"]), {"b"})  # the news comes after the loss
    step, start, _ = points.newest({"a", "b"})
    assert step == 20
    assert [part["holders"] for part in start["manifest"]["parts"]] == [["b"], ["b"]]


def test_snapshots_of_an_older_incarnation_are_replaced() -> None:
    points = RestartPoints(None)
    points.add_snapshot(10, snapshot(10, ["a"]), {"a", "b"})
    points.add_snapshot(20, snapshot(20, ["b"]), {"a", "b"})
    points.add_snapshot(15, snapshot(15, ["a"]), {"a", "b"})  # after a restart from step 10
    assert points.newest({"a", "b"})[0] == 15


def test_a_snapshot_that_nobody_has_is_not_tried_again() -> None:
    points = RestartPoints(None)
    points.add_snapshot(10, snapshot(10, ["a"]), {"a"})
    points.add_snapshot(20, snapshot(20, ["a"]), {"a"})
    assert points.drop("the snapshot of step 20")
    assert not points.drop("")
    assert points.newest({"a"})[0] == 10


def test_an_older_checkpoint_is_tried_where_one_cannot_be_read() -> None:
    points = RestartPoints("file:///before")
    for step in (9, 1, 19):
        points.add_checkpoint(step, f"file:///step-{step}")
    points.drop("file:///step-19")
    assert points.newest([])[:2] == (9, {"url": "file:///step-9"})
    points.drop("file:///step-9")
    assert points.newest([])[:2] == (1, {"url": "file:///step-1"})


def test_groups_never_start_from_a_later_step_than_servers_know() -> None:
    points = RestartPoints("file:///before")
    points.add_snapshot(10, snapshot(10, ["a"]), {"a"})
    points.add_snapshot(20, snapshot(20, ["a"]), {"a"})

    def begun(steps: dict[int, int]) -> int:
        start = points.of_groups(steps, ["a"])
        return int(start["manifest"]["groups"]["1"]["step"]) if "manifest" in start else 0

    assert begun({1: 22}) == 22
    assert begun({1: 21}) == 12
    assert begun({1: 11}) == 0


def test_groups_start_from_the_newest_checkpoint_if_there_is_no_snapshot() -> None:
    """The one that the job continues from is deleted once there are newer ones."""
    points = RestartPoints("file:///before")
    assert points.of_groups({1: 30}, ["a"]) == {"url": "file:///before"}
    points.add_checkpoint(10, "file:///10")
    assert points.of_groups({1: 30}, ["a"]) == {"url": "file:///10"}


# -- how often -----------------------------------------------------------------------------------------------------


def test_restarts_without_a_later_step_are_limited() -> None:
    restarts = Restarts(2)
    for step in (5, 3):
        assert not restarts.refusal(step)
        restarts.add("lost.", step)
    assert "restarted 2 times without a later step" in restarts.refusal(5)
    for step in range(6, 20):  # it makes a step each time
        assert not restarts.refusal(step)
        restarts.add("lost.", step)
    assert len(restarts) == 16
    assert Restarts(0).refusal(7) == "cluster.max_restarts is 0."


def test_starts_without_progress_are_further_and_further_apart() -> None:
    restarts = Restarts(100)
    waits = []
    for step in (5, 5, 5, 5, 5, 5, 5, 6):
        restarts.add("lost.", step)
        waits.append(restarts.backoff_s())
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 0.0]


# -- what is not used ----------------------------------------------------------------------------------------------


@few_examples(25)
@given(
    failures=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.floats(0, 1e4)), max_size=30),
    n_more=st.sampled_from([0, 1100]),
)
def test_workers_that_are_used_reach_each_other(failures: list[tuple[int, int, float]], n_more: int) -> None:
    suspects, now = Suspects(), 0.0
    workers = {f"w{i}": i for i in range(5)}
    ends: dict[frozenset[str], float] = {}
    for a, b, pause in [*failures, *[(0, 0, 0.0)] * n_more]:
        now += pause
        key = frozenset((f"w{a}", f"w{b}"))
        seconds = suspects.add(now, *key)
        assert 0 <= seconds <= 600
        ends[key] = now + seconds
        used = suspects.others(now, workers, ["w1"])
        assert not any(until > now and each <= used for each, until in ends.items())
        alone = {each for key, until in ends.items() if until > now and len(key) == 1 for each in key}
        assert used or alone == set(workers)
        assert suspects.others(now + 601, workers, []) == set(workers)
    for worker in workers:
        suspects.forget(worker)
    assert suspects.others(now, workers, []) == set(workers)


@few_examples(40)
@given(name=NAMES, workers=WORKERS, kept=st.sets(st.sampled_from([f"w{i}" for i in range(10)])))
def test_dask_workers_are_kept_as_if_each_were_worth_something(
    name: str, workers: dict[str, WorkerFacts], kept: set[str]
) -> None:
    def tried(**how: Any) -> list[str] | None:
        try:
            return place(LAYOUTS[name], workers, **how)
        except ClusterError:
            return None

    def gain(processes: Sequence[int], left: Sequence[str], chosen: Mapping[int, str]) -> np.ndarray:
        return np.tile([float(worker in kept) for worker in left], (len(processes), 1))

    assert tried(kept=kept) == tried(gain=gain)


def test_a_thousand_processes_are_placed_again_at_once() -> None:
    class Counted(dict[str, WorkerFacts]):
        n = 0

        def __getitem__(self, address: str) -> WorkerFacts:
            self.n += 1
            return super().__getitem__(address)

    cluster = ClusterConf.model_validate({"nworkers_per_group": 1000, "nservers_per_group": 1000})
    layout, workers = plan_processes(cluster), Counted(facts(*(i // 16 for i in range(1010))))
    _, chosen = place_again(layout, workers, sorted(workers)[:1000], (1, 1000), packed=False)
    assert set(chosen) == set(sorted(workers)[:1000])
    assert workers.n < 10 * len(workers)
