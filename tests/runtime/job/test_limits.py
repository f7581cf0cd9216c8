"""Limits of time: one table, which is documented, checked at start, and holds everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest

from singa_dask.comm.transport import Transport
from singa_dask.errors import ConfigError
from singa_dask.runtime import local_cluster
from singa_dask.runtime.job.dask_worker import site
from singa_dask.runtime.job.limits import LIMITS, check_limits, limit
from singa_dask.runtime.job.scheduler.jobs import Jobs
from tests.runtime.processes import ROOT, Driven, digits, small_cluster

KEY = "distributed.singa-dask"
SETTINGS = [name for name, known in LIMITS.items() if known.default]


def test_the_documented_table_is_this_one() -> None:
    text = (ROOT / "docs/recovery.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)` \| (\d+s) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(name, LIMITS[name].default, LIMITS[name].meaning) for name in SETTINGS]


@pytest.mark.parametrize("value", ["soon", "1 min", None])
@pytest.mark.parametrize("read", [lambda: limit("silent"), lambda: check_limits("here")], ids=["one", "all"])
def test_what_is_no_duration_is_refused(value: Any, read: Callable[[], Any]) -> None:
    with dask.config.set({f"{KEY}.silent": value}):
        with pytest.raises(
            ConfigError, match=rf"{KEY}.silent in Dask's configuration: .* is not a duration\. Expected"
        ):
            read()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"host": "5s"}, "host in Dask's configuration: 5 s. Expected at least 30 s, as answer is 30 s"),
        ({"answer": "400s"}, "host in Dask's configuration: 300 s. Expected at least 400 s, as answer is 400 s"),
        ({"scheduler": "5s"}, "scheduler in Dask's configuration: 5 s. Expected at least 10 s, as answer is 30 s"),
        ({"stop": "1s"}, "stop in Dask's configuration: 1 s. Expected at least 8 s, as end is 8 s"),
    ],
    ids=["host", "answer", "scheduler", "stop"],
)
def test_a_limit_that_another_one_outlasts_is_refused(settings: dict[str, str], said: str) -> None:
    with dask.config.set({f"{KEY}.{name}": value for name, value in settings.items()}):
        with pytest.raises(ConfigError, match=re.escape(said)):
            check_limits("here")


@pytest.mark.parametrize("value", ["3s", "60s"])
def test_all_may_be_alike(value: str) -> None:
    with dask.config.set({f"{KEY}.{name}": value for name in SETTINGS}):
        check_limits("here")


@pytest.mark.cluster
def test_a_scheduler_takes_no_jobs_with_a_wrong_limit() -> None:
    with small_cluster(0, 1) as there, there.get_client() as client, dask.config.set({f"{KEY}.answer": "soon"}):
        with pytest.raises(ConfigError, match=f"^the scheduler at .*: {KEY}.answer in Dask's configuration: 'soon'"):
            client.register_plugin(Jobs())


@pytest.mark.cluster
def test_processes_of_a_job_wait_for_each_other_as_long_as_the_scheduler_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, float]] = []

    class Seen(Transport):
        def __init__(self, *args: Any, retry_s: float, timeout_s: float, **options: Any) -> None:
            seen.append((retry_s, timeout_s))
            super().__init__(*args, retry_s=retry_s, timeout_s=timeout_s, **options)

    monkeypatch.setattr(site, "Transport", Seen)
    with local_cluster(2, 2, processes=False) as client, dask.config.set({f"{KEY}.silent": "60s"}):
        assert Driven(digits("allreduce"), client, tmp_path).result.state == "done"
    assert seen == [(60.0, 3.0)] * 2
