"""Followers of a job: all of its events, in order, each once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client

from singa_dask.errors import ClusterError, SchedulerError
from singa_dask.runtime.job.calls import ask_jobs
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.job.driver import follower as module
from singa_dask.runtime.job.driver.follower import Follower
from singa_dask.runtime.job.job_end import JobEnd
from singa_dask.runtime.job.names import JOBS, Op
from singa_dask.runtime.job.scheduler.event_log import PAGE, EventLog
from tests.runtime.processes import Driven, digits

pytestmark = pytest.mark.cluster
N_STEPS = 40


def log_of(*kinds: str, limit: int) -> EventLog:
    """Return a log of metrics and of messages of some levels."""
    log = EventLog(limit)
    for n, kind in enumerate(kinds):
        log.append({"event": "metrics", "n": n} if kind == "metrics" else {"event": "log", "level": kind, "n": n})
    return log


def test_events_come_in_pages() -> None:
    kept = log_of(*["metrics"] * (3 * PAGE), limit=2 * PAGE)
    first = kept.after(-1)
    assert [event["n"] for event in first] == list(range(PAGE, 2 * PAGE))
    assert kept.after(3 * PAGE - 2) == [{"event": "metrics", "n": 3 * PAGE - 1}]
    assert kept.after(3 * PAGE) == []
    assert EventLog(1).after(-1) == []


def test_warnings_outlive_the_metrics_of_a_day() -> None:
    kinds = ["metrics", "INFO", "WARNING", "metrics"] * 50 + ["ERROR"] + ["metrics", "INFO"] * 500
    kept = log_of(*kinds, limit=60)
    assert sum(event.get("level") in ("WARNING", "ERROR") for event in kept.after(-1)) == 51
    numbers = [event["n"] for event in kept.after(-1)]
    assert numbers == sorted(numbers)
    assert numbers[-1] == len(kinds) - 1
    assert [event["n"] for event in reversed(kept)] == numbers[::-1]
    assert len(kept.newest(10).after(-1)) == 20


class FakeClient:
    """A client of a scheduler that has some events of a job, and gives two of them at a time."""

    id = "fake"
    status = "running"
    has_jobs = True

    def __init__(self, kept: list[dict[str, Any]], unnumbered: Sequence[dict[str, Any]] = ()) -> None:
        self.kept, self.unnumbered = kept, unnumbered
        self.scheduler = self

    def __getattr__(self, name: str) -> Any:
        assert name == Op.EVENTS
        return self._events

    def get_metadata(self, keys: list[str], default: bool) -> bool:
        return self.has_jobs

    def _events(self, job_id: str, after: int, wait_s: float, driver: int, client: str) -> list[dict[str, Any]]:
        return [*[event for event in self.kept if event["n"] > after][:2], *self.unnumbered]

    def sync(self, function: Any, *, callback_timeout: float, **arguments: Any) -> Any:
        return function(**arguments)


def test_events_come_in_order_each_once() -> None:
    events = [{"event": "log", "n": n} for n in range(7)] + [{"event": "over", "n": 7, "signal": "SIGINT"}]
    got: list[dict[str, Any]] = []
    client: Any = FakeClient(events)
    follower = Follower(client, "job", got.append)
    assert follower.follow() == JobEnd(signal="SIGINT")
    assert got == [{"event": "log"}] * 7
    assert follower.n == 7


def test_newest_steps_have_no_number_and_are_taken_once() -> None:
    got: list[dict[str, Any]] = []
    events = [*({"event": "log", "n": n} for n in range(3)), {"event": "over", "n": 3}]
    client: Any = FakeClient(events, [{"event": "steps", "steps": {"0": 3}}])
    follower = Follower(client, "job", got.append)
    follower.follow()
    assert got == [{"event": "log"}, {"event": "log"}, {"event": "steps", "steps": {"0": 3}}, {"event": "log"}]
    assert follower.n == 3


def test_a_job_whose_events_cannot_be_taken_is_stopped_once() -> None:
    """By one signal: a second one would end it without a checkpoint."""
    signals: list[dict[str, Any]] = []

    class Signalled(FakeClient):
        def __getattr__(self, name: str) -> Any:
            return signals.append if name == Op.SIGNAL else super().__getattr__(name)

        def sync(self, function: Any, *, callback_timeout: float, **arguments: Any) -> Any:
            if function == signals.append:
                return signals.append(arguments)
            return super().sync(function, callback_timeout=callback_timeout, **arguments)

    def fail(event: dict[str, Any]) -> None:
        raise ValueError("a bug")

    client: Any = Signalled([{"event": "log", "n": 0}])
    with pytest.raises(ValueError, match="a bug"):
        Follower(client, "job", fail).follow_to_its_end()
    assert signals == [{"job_id": "job", "name": "SIGTERM", "by": "ValueError('a bug') in its driver"}]


def test_what_is_not_kept_any_more_is_said() -> None:
    events = [{"event": "log", "n": n} for n in (5, 6)] + [{"event": "over", "n": 7}]
    got: list[dict[str, Any]] = []
    client: Any = FakeClient(events)
    Follower(client, "job", got.append, after=2).follow()
    assert "2 older events were dropped by the scheduler" in got[0]["message"]
    assert got[1:] == [{"event": "log"}] * 2


@pytest.mark.long
def test_one_that_comes_late_has_all_events_and_one_that_leaves_ends_nothing(client: Client, tmp_path: Path) -> None:
    late: list[dict[str, Any]] = []
    threads: list[threading.Thread] = []

    def come_late(driven: Driven, event: dict[str, Any]) -> None:
        with Client(client.scheduler.address, set_as_default=False) as other:
            leaving = Follower(other, driven.job_id, lambda event: leaving.leave())
            assert leaving.follow() is None
        threads.append(threading.Thread(target=follow, args=(driven.job_id,), name="late"))
        threads[0].start()

    def follow(job_id: str) -> None:
        with Client(client.scheduler.address, set_as_default=False) as other:
            Follower(other, job_id, late.append).follow()

    driven = Driven(digits("downpour", "disp_freq=1", f"train_steps={N_STEPS}"), client, tmp_path, come_late)
    threads[0].join()
    assert driven.result.state == "done"
    told = [event for event in driven.events if event["event"] not in ("started", "steps")]
    assert [event for event in late if event["event"] != "steps"] == told
    again: list[dict[str, Any]] = []
    Follower(client, driven.job_id, again.append).follow()
    assert [event for event in again if event["event"] != "steps"] == told
    # only the last ones are kept
    assert [event["steps"] for event in again if event["event"] == "steps"] == [{"0": N_STEPS, "1": N_STEPS}]
    facts = client.run_on_scheduler(facts_of, driven.job_id)
    assert (facts["state"], facts["step"], facts["run_url"]) == ("done", N_STEPS, driven.url)
    assert facts["metrics"]["train"] == driven.result.train
    assert ask_jobs(client, Op.EVENTS, job_id="nobody") is None


def break_plug_in(is_broken: bool, dask_scheduler: Any) -> None:
    """Let operations of the scheduler's plug-in raise an error that a lost connection also raises, or none again."""
    jobs = dask_scheduler.plugins[JOBS]
    if is_broken:
        jobs.detached.has = jobs.queue.has = {}.__getitem__
    else:
        del jobs.detached.has, jobs.queue.has


def test_a_bug_of_the_scheduler_is_raised_at_once_and_not_waited_for(client: Client) -> None:
    install_jobs(client)
    said: list[dict[str, Any]] = []
    follower = Follower(client, "job", said.append)
    client.run_on_scheduler(break_plug_in, True)
    try:
        for call, op in ((follower.follow, Op.EVENTS), (lambda: follower.ask(Op.REFUSAL, job_id="job"), Op.REFUSAL)):
            with pytest.raises(SchedulerError, match=f"the scheduler failed in {op}: KeyError: 'job'. This is a bug"):
                call()
    finally:
        client.run_on_scheduler(break_plug_in, False)
    assert said == []
    assert follower.ask(Op.REFUSAL, job_id="job") == ""


def facts_of(job_id: str, dask_scheduler: Any) -> Any:
    return dask_scheduler.plugins[JOBS].history.facts[job_id].to_dict()


class CutOffClient(FakeClient):
    """A client that has lost its connection, which comes back after some looks at its status."""

    def __init__(self, kept: list[dict[str, Any]], n_looks: int) -> None:
        super().__init__(kept)
        self.n_looks = n_looks

    @property
    def status(self) -> str:  # type: ignore[override]
        self.n_looks -= 1
        return "running" if self.n_looks < 0 else "connecting"


def test_a_lost_connection_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    events = [{"event": "log", "n": 0}, {"event": "over", "n": 1}]
    got: list[dict[str, Any]] = []
    client: Any = CutOffClient(events, 50)
    with dask.config.set({"distributed.singa-dask.answer": "0s"}):
        assert Follower(client, "job", got.append).follow() == JobEnd()
    assert [each.get("message") for each in got] == [
        "the connection to the scheduler is lost. "
        "Running units continue to train. Waiting up to 60 s for the scheduler.",
        "the scheduler answers again.",
        None,
    ]
    client = CutOffClient(events, 10**6)
    with dask.config.set({"distributed.singa-dask.client": "0s"}):
        over = Follower(client, "job", got.append).follow()
    assert over is not None and over.reason.startswith("the scheduler could not be reached again")


class SilentClient(FakeClient):
    """A client whose scheduler answers the last of some questions."""

    def __init__(self, n_silent: int) -> None:
        super().__init__([])
        self.n_silent, self.asked = n_silent, 0

    def __getattr__(self, name: str) -> Any:
        assert name == Op.SUBMIT
        return self._submit

    def _submit(self, spec: str) -> dict[str, str]:
        self.asked += 1
        if self.asked <= self.n_silent:
            raise TimeoutError
        return {"refused": spec}


def test_a_question_is_asked_again_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    said: list[dict[str, Any]] = []
    client: Any = SilentClient(3)
    follower = Follower(client, "job", said.append)
    assert follower.ask(Op.SUBMIT, spec="no") == {"refused": "no"}
    assert client.asked == 4
    assert [each["message"].split(".")[0] for each in said] == [
        "the scheduler does not answer", "the scheduler answers again"
    ]  # fmt: skip
    client.asked, client.n_silent = 0, 10**6
    with dask.config.set({"distributed.singa-dask.scheduler": "0s"}):
        with pytest.raises(ClusterError, match="has not answered for"):
            follower.ask(Op.SUBMIT, spec="no")
    client.asked, client.n_silent = 0, 0
    assert follower.ask(Op.SUBMIT, spec="yes") == {"refused": "yes"}
    client.asked, client.n_silent, client.has_jobs = 0, 10**6, False
    with pytest.raises(ClusterError, match="the scheduler was restarted"):
        follower.ask(Op.SUBMIT, spec="no")


class BusyClient(CutOffClient):
    """A client that has lost its connection, and whose scheduler does not answer the first questions after that."""

    n_silent = 3

    def _events(self, *given: Any, **asked: Any) -> list[dict[str, Any]]:
        self.n_silent -= 1
        if self.n_silent >= 0:
            raise TimeoutError
        return super()._events(*given, **asked)


def test_a_scheduler_is_waited_for_that_is_busy_when_its_connection_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    events = [{"event": "log", "n": 0}, {"event": "over", "n": 1}]
    said: list[dict[str, Any]] = []
    client: Any = BusyClient(events, 50)
    assert Follower(client, "job", said.append).follow() == JobEnd()
    assert [each.get("message", "").split(".")[0] for each in said] == [
        "the scheduler does not answer", "the scheduler answers again", ""
    ]  # fmt: skip
