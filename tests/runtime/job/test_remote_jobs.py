"""Which job a person means."""

from __future__ import annotations

from typing import Any, cast

import pytest

from singa_dask.errors import ConfigError
from singa_dask.runtime.job.client.remote_jobs import RemoteJobs, match_job
from singa_dask.runtime.job.names import Op

ENDED, RUNNING = 1.0, None


def rows(*jobs: tuple[str, float | None]) -> list[dict[str, Any]]:
    return [
        {"id": job_id, "name": job_id.split("-")[0], "run_url": f"/runs/{job_id[-1]}", "ended": ended}
        for job_id, ended in reversed(jobs)
    ]


KNOWN = rows(
    ("digits-20261101-120000-aaaa", ENDED),
    ("digits-20261102-120000-bbbb", RUNNING),
    ("mnist-20261102-120000-cccc", ENDED),
    ("mnist-20261103-120000-dddd", ENDED),
    ("rnn-20261103-120000-eeee", RUNNING),
    ("rnn-20261103-120000-ffff", RUNNING),
)


@pytest.mark.parametrize(
    ("piece", "end"),
    [
        ("digits-20261101-120000-aaaa", "aaaa"),
        ("aaaa", "aaaa"),
        ("digits", "bbbb"),
        ("digits-20261101", "aaaa"),
        ("eeee", "eeee"),
        ("mnist-20261103", "dddd"),
        ("mnist", "dddd"),
        ("/runs/d", "dddd"),
        ("/runs/../runs/e/", "eeee"),
    ],
)
def test_a_job_is_found(piece: str, end: str) -> None:
    assert match_job(piece, KNOWN)["id"].endswith(end)


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("rnn", "several jobs contain this in their id or name: rnn-20261103-120000-ffff, rnn-20261103-120000-eeee."),
        (
            "20261103",
            "there is no such job. Expected an id, at least 4 characters of its beginning or end, a name, or a run "
            "directory. Known: ",
        ),
        ("dig", "there is no such job."),  # the one that runs has not been named
        ("a", "there is no such job."),
    ],
)
def test_what_is_meant_is_not_clear(piece: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        match_job(piece, KNOWN)
    assert str(caught.value).startswith(f"{piece}: {message}")


def test_long_lists_are_cut() -> None:
    with pytest.raises(ConfigError, match=r"job-9, .*, job-2 and 2 more. Give more of the id"):
        match_job("job", rows(*((f"job-{i}", RUNNING) for i in range(10))))
    with pytest.raises(ConfigError, match="The cluster knows no job"):
        match_job("job", [])


def test_nothing_means_no_job() -> None:
    with pytest.raises(ConfigError, match=r"^'': there is no such job"):
        match_job("", rows(("alone-20261102-120000-bbbb", RUNNING)))


def test_of_an_unknown_job_it_is_said_that_not_all_jobs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, unread = RemoteJobs(cast("Any", None)), "/state: the scheduler has not yet read the detached jobs."
    monkeypatch.setattr(jobs, "_ask", lambda op, **given: {Op.UNREAD: unread}.get(op))
    monkeypatch.setattr(jobs, "rows", lambda: KNOWN)
    jobs.unread = unread
    assert jobs.find("aaaa")["id"].endswith("aaaa")
    for ask in (jobs.find, jobs.stop):
        with pytest.raises(ConfigError, match=r"has not yet read the detached jobs\.$"):
            ask("digits-20261104-120000-gggg")
