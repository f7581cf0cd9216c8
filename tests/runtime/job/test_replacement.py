"""What a job starts again when it loses processes, and what it tells the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf
from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.incarnation import Incarnation
from singa_dask.runtime.job.state.placer import Placer, Roster
from singa_dask.runtime.job.state.replacement import Replacement
from singa_dask.runtime.job.state.restarts import RestartPoints
from singa_dask.runtime.planning.worker_choice import WorkerFacts

CLUSTER = ClusterConf.model_validate({"nworker_groups": 3, "server_worker_separate": True})
LAYOUT = plan_processes(CLUSTER)
"""Processes 0 to 2 have a worker each, process 3 has the server."""
WORKERS = {f"tcp://{i}": WorkerFacts(4, 0, "here", f"{i}", False, True) for i in range(5)}


def snapshot(holders: list[str]) -> dict[str, Any]:
    groups = {str(group): {"step": 8, "cursors": {}} for group in range(3)}
    part = {"file": "part", "holders": holders}
    return {"step": 8, "groups": groups, "parts": [part], "states": [{**part, "file": "states"}]}


def replaced(lost: int, done: tuple[int, ...], manifest: Mapping[str, Any]) -> tuple[act.Host, act.Join]:
    """Replace a process; return how it is hosted, and what a survivor is told."""
    incarnation = Incarnation(Roster.of(0, LAYOUT, list(WORKERS)[:4]))
    for group in done:
        incarnation.reports[f"worker-{group}-0"] = {"state": "done", "step": 30}
    points = RestartPoints("")
    points.add_snapshot(8, manifest, list(WORKERS))
    replacement = Replacement(incarnation, [lost], points, Placer(LAYOUT, CLUSTER))
    gone = {f"tcp://{process}" for process in (lost, *done)}
    present = {address: facts for address, facts in WORKERS.items() if address not in gone}
    asked = replacement.begin(0.0, present, "it was lost")
    actions = []
    for each in asked:
        if isinstance(each, act.CutOff):
            applied = {lost: 10} if each.process == 3 else {}
            actions = replacement.handle(ev.Cut(0, each.process, each.request, applied), 0.0, present)
    (host,) = [each for each in actions if isinstance(each, act.Host)]
    joins = replacement.handle(ev.Hosted(host.incarnation, lost, "tcp://new"), 0.0, present)
    assert not replacement.failed
    return host, joins[0]


def test_a_worker_that_is_done_and_starts_again_has_not_left() -> None:
    host, join = replaced(0, (0, 2), snapshot(["tcp://1"]))
    assert host.rejoin is not None
    assert host.rejoin.left == {Address.worker(2, 0)}
    assert join.left == (Address.worker(2, 0),)
    assert host.rejoin.steps == {0: 11}


def test_layer_states_are_read_where_they_are_still_held() -> None:
    host, _ = replaced(1, (), snapshot(["tcp://1", "tcp://4"]))
    assert host.rejoin is not None
    assert host.rejoin.steps == {1: 11}
    manifest = host.start["manifest"]
    assert [each["holders"] for each in (*manifest["parts"], *manifest["states"])] == [["tcp://4"], ["tcp://4"]]


def test_a_group_goes_on_after_the_step_that_all_servers_have() -> None:
    cluster = ClusterConf.model_validate({**CLUSTER.model_dump(), "nservers_per_group": 2})
    layout = plan_processes(cluster)
    workers = {f"tcp://{i}": WorkerFacts(4, 0, "here", f"{i}", False, True) for i in range(6)}
    points = RestartPoints("")
    points.add_snapshot(8, snapshot(["tcp://1"]), list(workers))
    replacement = Replacement(
        Incarnation(Roster.of(0, layout, list(workers)[:5])), [0], points, Placer(layout, cluster)
    )
    del workers["tcp://0"]
    asked = [each for each in replacement.begin(0.0, workers, "it was lost") if isinstance(each, act.CutOff)]
    actions = []
    for each, applied in zip(asked, ({}, {}, {0: 10}, {0: 9}), strict=True):
        actions = replacement.handle(ev.Cut(0, each.process, each.request, applied), 0.0, workers)
    (host,) = [each for each in actions if isinstance(each, act.Host)]
    assert host.rejoin is not None
    assert host.rejoin.steps == {0: 10}


def test_an_answer_to_an_earlier_request_is_not_taken_for_a_later_one() -> None:
    """The survivors were told of a new buddy before, and one of them answers late."""
    incarnation = Incarnation(Roster.of(0, LAYOUT, list(WORKERS)[:4]), dict(enumerate(WORKERS)))
    early = {process: incarnation.ask(process) for process in range(4)}
    points = RestartPoints("")
    points.add_snapshot(8, snapshot(["tcp://1"]), list(WORKERS))
    replacement = Replacement(incarnation, [1], points, Placer(LAYOUT, CLUSTER))
    present = {address: facts for address, facts in WORKERS.items() if address != "tcp://1"}
    for each in replacement.begin(0.0, present, "it was lost"):
        assert isinstance(each, act.CutOff)
        replacement.handle(ev.Cut(0, each.process, each.request, {1: 10}), 0.0, present)
    joins = replacement.handle(ev.Hosted(1, 1, "tcp://new"), 0.0, present)
    assert [each.process for each in joins] == [0, 2, 3]
    for each in joins[:2]:
        assert replacement.handle(ev.Joined(0, each.process, each.request), 0.0, present) == []
    for error in ("", "it does not answer"):
        assert replacement.handle(ev.Joined(0, 3, early[3], error), 0.0, present) == []
    assert (replacement.phase, replacement.failed) == ("joining", "")
    assert replacement.handle(ev.Joined(0, 3, joins[2].request), 0.0, present)
    assert replacement.phase == "running"


def test_a_process_that_is_done_and_gone_need_not_answer_any_more() -> None:
    incarnation = Incarnation(Roster.of(0, LAYOUT, list(WORKERS)[:4]))
    replacement = Replacement(incarnation, [1], RestartPoints(""), Placer(LAYOUT, CLUSTER))
    present = {address: facts for address, facts in WORKERS.items() if address != "tcp://1"}
    asked = {each.process: each.request for each in replacement.begin(0.0, present, "it was lost")}
    incarnation.reports["worker-2-0"] = {"state": "done", "step": 30}
    del present["tcp://2"]
    replacement.handle(ev.Gone("tcp://2", "it is gone"), 0.0, present)
    replacement.handle(ev.Cut(0, 2, asked[2], error="tcp://2 does not answer"), 0.0, present)
    assert (replacement.phase, replacement.failed) == ("ending", "")
