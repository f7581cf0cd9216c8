"""The order of queued jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from singa_dask.runtime.job.scheduler.history import History
from singa_dask.runtime.job.scheduler.job_queue import JobQueue
from tests.selection import few_examples


class Line(JobQueue):
    """A queue whose jobs have nothing but an order."""

    def __init__(self) -> None:
        scheduler: Any = SimpleNamespace(workers={})
        super().__init__(scheduler, History())

    def join(self, job_id: str, priority: int = 0) -> None:
        """Ask whether it is the turn of a job."""
        self.turn({"id": job_id, "priority": priority}, "client")


def test_first_come_first_served_within_a_priority() -> None:
    line = Line()
    for job_id, priority in (("a", 0), ("b", 0), ("urgent", 5), ("idle", -1), ("c", 0), ("a", 9)):
        line.join(job_id, priority)
    assert line.ahead_of("idle") == ["urgent", "a", "b", "c"]
    assert line.ahead_of("urgent") == []
    line.leave("urgent")
    line.leave("nobody")
    assert line.ahead_of("b") == ["a"]


def test_a_job_that_is_not_in_line_does_not_pass_those_that_are() -> None:
    line = Line()
    assert line.ahead_of("new") == []
    line.join("a")
    assert line.ahead_of("new") == ["a"]
    assert line.ahead_of("new", priority=1) == []
    assert line.ahead_of("new", priority=-1) == ["a"]


def test_a_question_that_comes_late_does_not_join_the_line_again() -> None:
    line = Line()
    for job_id, ticket in (("a", "1"), ("b", "2")):
        line.turn({"id": job_id}, "client", ticket=ticket)
    line.leave("a")
    assert line.turn({"id": "a"}, "client", ticket="1") == {"ahead": [], "short": "", "end": {}}
    assert not line.has("a")
    line.turn({"id": "a"}, "client", ticket="3")  # the same job, started once more
    assert line.ahead_of("a") == ["b"]


def test_a_queued_job_says_that_the_cluster_is_too_small_until_it_has_grown() -> None:
    """Not of the first one: it is said what is missing when it is tried."""
    line = Line()
    workers = cast("Any", line._scheduler).workers
    for job_id, n in (("first", 9), ("large", 9), ("small", 3)):
        cluster = {"nworkers_per_group": n, "nservers_per_group": n, "server_worker_separate": False}
        answer = line.turn({"id": job_id}, "client", cluster=cluster)
    workers.update({i: SimpleNamespace(name=i, nthreads=2, resources={}) for i in range(3)})
    needs = "needs 9 Dask workers with 2 threads; the cluster has 3"
    assert [facts.reason for facts in line.facts().values()] == ["", needs, ""]
    assert answer["short"] == "needs 3 Dask workers with 2 threads; the cluster has none"
    assert line.turn({"id": "large"}, "client")["short"] == needs
    workers.update({i: SimpleNamespace(name=i, nthreads=2, resources={}) for i in range(9)})
    assert line.facts()["large"].reason == ""


@few_examples(25)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1), st.booleans()), max_size=40))
def test_the_line_is_always_in_order(steps: list[tuple[int, int, bool]]) -> None:
    line, joined = Line(), dict[str, tuple[int, int]]()
    for i, (number, priority, joins) in enumerate(steps):
        job_id = str(number)
        if joins:
            line.join(job_id, priority)
            joined.setdefault(job_id, (-priority, i))
        else:
            line.leave(job_id)
            joined.pop(job_id, None)
        order = sorted(joined, key=joined.__getitem__)
        for place, each in enumerate(order):
            assert line.ahead_of(each) == order[:place]
