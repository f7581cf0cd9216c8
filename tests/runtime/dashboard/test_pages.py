"""What the scheduler serves: the page and its data, the link from Dask's pages, and metrics for Prometheus."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dask
import prometheus_client
import pytest
import requests
from distributed import LocalCluster
from prometheus_client.parser import text_string_to_metric_families

from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.dashboard.pages import add_dashboard, add_page, as_json
from singa_dask.runtime.dashboard.prometheus import JobsCollector
from singa_dask.runtime.job.names import JOBS
from singa_dask.runtime.job.scheduler.jobs import Jobs
from singa_dask.runtime.job.scheduler.views import SHOWN_LINES
from tests.runtime.dashboard.jobs import full, shown

NASTY = '<script>x</script> "a\\b\n'


@pytest.fixture(
    scope="module", params=[pytest.param(False, id="plain"), pytest.param(True, id="bokeh", marks=pytest.mark.long)]
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Start a scheduler without Dask's dashboard that loads the page, or one with it; give its address for browsers."""
    options: dict[str, Any] = {"n_workers": 0, "processes": False, "host": "127.0.0.1", "protocol": "tcp"}
    preload = [] if request.param else ["singa_dask.runtime"]
    options["scheduler_kwargs"] = {"dashboard": request.param, "preload": preload}
    with LocalCluster(**options, dashboard_address="127.0.0.1:0") as cluster, cluster.get_client() as client:
        if request.param:
            client.register_plugin(Jobs(), name=JOBS)
        yield f"http://127.0.0.1:{cluster.scheduler.services['dashboard'].port}"


@pytest.mark.cluster
def test_the_page_and_its_files_are_served_with_and_without_bokeh(url: str) -> None:
    page = requests.get(f"{url}/singa", {"token": "none is needed"})
    assert page.status_code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    for name in ("singa/singa.css", "singa/singa.js"):
        assert f'"{name}"' in page.text
        assert requests.get(f"{url}/{name}").status_code == 200
    assert requests.get(f"{url}/singa/").url == f"{url}/singa"
    assert requests.get(f"{url}/singa/jobs.json").json()["jobs"] == []
    unknown = requests.get(f"{url}/singa/job.json", {"id": NASTY})
    assert (unknown.status_code, unknown.json()) == (404, None)
    for name in ("log", "stacks"):
        text = requests.get(f"{url}/singa/{name}.txt", {"id": NASTY})
        assert (text.status_code, text.headers["Content-Type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.cluster
def test_a_page_changes_nothing(url: str) -> None:
    for path in ("singa", "singa/singa.js", "singa/jobs.json", "singa/job.json?id=x", "singa/log.txt?id=x"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert requests.request(method, f"{url}/{path}").status_code == 405
    assert requests.get(f"{url}/singa/../../setup.cfg").status_code == 404


@pytest.mark.cluster
def test_dasks_pages_have_a_link_to_it(url: str, request: pytest.FixtureRequest) -> None:
    page = requests.get(f"{url}/status")
    assert ('href="singa"' in page.text) == ("bokeh" in request.node.callspec.id)


@pytest.mark.cluster
def test_metrics_are_among_those_of_dask(url: str) -> None:
    text = requests.get(f"{url}/metrics").text
    assert "dask_scheduler_workers" in text
    assert "singa_dask_job_step" in text


def test_a_scheduler_without_http_server_has_no_page() -> None:
    scheduler: Any = object()
    source: Any = None
    add_page(scheduler, source)


def test_json_has_null_for_what_is_no_number() -> None:
    assert json.loads(as_json({"a": [1.0, math.nan, (math.inf, "x")], "b": None})) == {
        "a": [1.0, None, [None, "x"]],
        "b": None,
    }


class Source:
    """Two jobs, one of them with a name that nobody should have."""

    def live(self) -> list[tuple[dict[str, Any], Activity]]:
        activity = Activity()
        activity.add_progress({"process": 0, "bytes": [7, 8], "workers": {"worker-0-0": [5, 2.0, 0.25, 0.5, 0.0]}}, 1.0)
        row = {
            "id": NASTY,
            "state": "running",
            "step": 5,
            "restarts": 2,
            "samples_per_s": 10.0,
            "metrics": {"train": {"loss": math.nan}},
        }
        return [(row, activity), ({**row, "id": "b", "state": "starting", "metrics": {}}, Activity())]


def test_metrics_of_prometheus_can_be_read_whatever_a_job_is_called() -> None:
    registry = prometheus_client.CollectorRegistry()
    registry.register(JobsCollector(Source()))
    text = prometheus_client.generate_latest(registry).decode()
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["singa_dask_job_step", NASTY] == 5
    assert found["singa_dask_job_restarts_total", NASTY] == 2
    assert math.isnan(found["singa_dask_job_metric", NASTY, "loss", "train"])
    assert found["singa_dask_job_wait_seconds_total", NASTY, "params", "worker-0-0"] == 0.5
    assert found["singa_dask_job_bytes_total", NASTY, "received"] == 8
    assert found["singa_dask_job_state", "b", "starting"] == 1
    assert found["singa_dask_jobs", "running"] == 1


def test_an_error_in_our_metrics_leaves_those_of_dask(caplog: pytest.LogCaptureFixture) -> None:
    source: Any = None
    with caplog.at_level("ERROR"):
        assert list(JobsCollector(source).collect()) == []
    assert "cannot be shown" in caplog.text


def test_answers_for_many_jobs_and_units_are_small() -> None:
    records = [full(f"job-{i}", 300 if i == 7 else 1) for i in range(50)]
    source = shown(records, n_ended=1000)
    overview = source.overview()
    assert len(overview["jobs"]) == 100
    assert overview["n_ended"] == 1000
    assert len(as_json(overview)) < 50_000
    job = source.describe("job-7")
    assert job is not None
    assert len(job["workers"]) == 32
    assert sum(len(each["units"]) for each in job["processes"]) == 64
    assert len(as_json(job)) < 100_000
    assert len(as_json(source.view("job-7"))) < 100_000
    assert job["reasons"] == []
    assert len(source.live()) == 50


def test_a_list_comes_in_pages() -> None:
    source = shown([full("runs", 1)], n_ended=450)
    pages = [source.list()]
    while page := source.list(before=pages[-1][-1]["id"]):
        pages.append(page)
    assert [len(page) for page in pages] == [201, 200, 50]
    assert pages[0][0]["id"] == "runs"
    assert len({row["id"] for page in pages for row in page}) == 451


def test_what_a_job_takes_and_says_is_shown() -> None:
    record = full("runs", 1)
    record.add_event({"event": "steps", "steps": {"0": 7}})
    record.add_event({"event": "over", "reports": {}, "failure": {"reason": "x", "exit_code": 1}, "signal": ""})
    source = shown([record])
    job = source.describe("runs")
    assert job is not None
    assert [(each["cpu"], each["memory"], each["memory_limit"]) for each in job["processes"][:2]] == [
        (150.3, 10**9, 2 * 10**9),
        (151.3, 10**9, 2 * 10**9),
    ]
    assert [event["text"] for event in job["events"]][:2] == ["line 29 of a log", "line 28 of a log"]
    lines = (source.log("runs") or "").splitlines()
    assert len(lines) == 30
    assert lines[-1].endswith(" INFO driver: line 29 of a log")
    for n in range(SHOWN_LINES):
        record.add_event({"event": "log", "level": "INFO", "message": f"more {n}"})
    lines = (source.log("runs") or "").splitlines()
    assert lines[0] == "... singa-dask logs runs prints the lines before these."
    assert len(lines) == 1 + SHOWN_LINES
    assert lines[1].endswith("more 0")
    assert source.log("gone") is None


def test_jobs_in_line_are_shown() -> None:
    source = shown([full("runs")])
    facts = {"id": "waits", "name": "waits", "owner": "ann@host", "run_url": "", "topology": {}, "train_steps": 10}
    source._jobs.queue.turn(facts, client="c", why="the job does not fit")
    overview = source.overview()
    assert [(row["id"], row["state"]) for row in overview["jobs"]] == [("runs", "starting"), ("waits", "queued")]
    assert overview["n_queued"] == 1
    job = source.describe("waits")
    assert job is not None
    assert (job["reason"], job["processes"], job["workers"]) == ("the job does not fit", [], {})


@pytest.mark.cluster
def test_with_a_token_the_port_tells_nothing_to_others(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tornado"), "propagate", True)
    caplog.set_level(logging.DEBUG, "tornado.access")
    with dask.config.set({"distributed.singa-dask.http-token": "se-cret"}):
        texts = ("singa/log.txt?id=x", "singa/stacks.txt?id=x")
        for path in ("singa", "singa/", "singa/jobs.json", *texts, "singa/metrics", "singa?token=wrong"):
            refused = requests.get(f"{url}/{path}", headers={"Authorization": "Bearer se-cre"} if "?" in path else {})
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "Authorization: Bearer TOKEN" in refused.text
        allowed = {"singa": 200, "singa/jobs.json": 200, "singa/job.json?id=x": 404, "singa/metrics": 200}
        for path, status in allowed.items():
            assert requests.get(f"{url}/{path}", headers={"Authorization": "Bearer se-cret"}).status_code == status
            assert requests.get(f"{url}/{path}", {"token": "se-cret"}).status_code == status
        for path in ("singa/singa.css", "singa/singa.js"):  # browsers send none for them
            assert requests.get(f"{url}/{path}").status_code == 200
        assert "singa_dask_jobs" in requests.get(f"{url}/singa/metrics", {"token": "se-cret"}).text
        moved = requests.get(f"{url}/singa/", {"token": "se-cret"}, allow_redirects=False)
        assert (moved.status_code, moved.headers["Location"]) == (301, "../singa")
    served = "\n".join(each.getMessage() for each in caplog.records if not each.name.startswith("urllib3"))
    assert "GET /singa" in served
    assert "se-cret" not in served


@pytest.mark.parametrize("token", ["", "se-cret"])
def test_with_a_token_metrics_of_jobs_are_not_among_those_of_dask(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = prometheus_client.CollectorRegistry()
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    scheduler: Any = object()
    source: Any = SimpleNamespace(live=list)
    with dask.config.set({"distributed.singa-dask.http-token": token}):
        remove = add_dashboard(scheduler, source)
    assert (b"singa_dask_jobs" in prometheus_client.generate_latest(registry)) == (not token)
    remove()
    assert b"singa_dask_jobs" not in prometheus_client.generate_latest(registry)
