"""What a browser and Prometheus are shown of the jobs on a Dask scheduler."""

from __future__ import annotations

import hmac
import json
import logging
import math
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import dask.config
from distributed import Scheduler
from tornado import web

from singa_dask.observe.journal import finite

MAX_POINTS = 200
MAX_CURVES = 16
MAX_GROUPS = 4
RATE = "samples_per_s"


class Curve:
    """Means of a value over equal numbers of consecutive reports.

    Whenever `MAX_POINTS` are full, each two become one. A report so takes constant time, in the mean.
    """

    def __init__(self) -> None:
        self._steps = array("q")
        self._values = array("d")
        self._n_per_point = 1
        self._n, self._sum, self._step = 0, 0.0, 0

    def add(self, step: int, value: float) -> None:
        """Add a value; ``step`` is not smaller than the one before."""
        self._n, self._sum, self._step = self._n + 1, self._sum + value, step
        if self._n < self._n_per_point:
            return
        self._steps.append(step)
        self._values.append(_rounded(self._sum / self._n))
        self._n, self._sum = 0, 0.0
        if len(self._steps) == MAX_POINTS:
            self._thin()

    def _thin(self) -> None:
        pairs = zip(self._values[::2], self._values[1::2], strict=True)
        self._values = array("d", [_rounded((a + b) / 2) for a, b in pairs])
        self._steps = self._steps[1::2]
        self._n_per_point *= 2

    def points(self) -> dict[str, list[Any]]:
        """Return ``steps`` and ``values``, None for those that are not finite; the last one is of fewer reports."""
        steps, values = self._steps.tolist(), self._values.tolist()
        if self._n:
            steps.append(self._step)
            values.append(_rounded(self._sum / self._n))
        return {"steps": steps, "values": [value if math.isfinite(value) else None for value in values]}


class Curves:
    """The curves of one job: each metric of each phase and worker group, and the rate of all groups together.

    At most `MAX_CURVES`, of the first `MAX_GROUPS` groups: those that come first.
    """

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str, int], Curve] = {}
        self._rates: dict[int, float] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Add the metrics of a worker group, an event of the job."""
        phase, group, step = event["phase"], int(event["group"]), int(event["step"])
        if RATE in event:
            self._rates[group] = event[RATE]
            if group == 0:
                self._add(phase, RATE, 0, step, sum(self._rates.values()))
        if group < MAX_GROUPS:
            for name, value in event["metrics"].items():
                self._add(phase, name, group, step, value)

    def _add(self, phase: str, name: str, group: int, step: int, value: float) -> None:
        key = (name, phase, group)
        curve = self._curves.get(key)
        if curve is None:
            if len(self._curves) == MAX_CURVES:
                return
            curve = self._curves[key] = Curve()
        curve.add(step, float(value))

    def describe(self) -> list[dict[str, Any]]:
        """Return for each curve ``metric``, ``phase``, ``group``, ``steps`` and ``values``."""
        return [
            {"metric": name, "phase": phase, "group": group, **curve.points()}
            for (name, phase, group), curve in self._curves.items()
        ]


def _rounded(value: float) -> float:
    """Return a value with the digits that a picture shows: JSON with all of them takes three times as long."""
    return float(f"{value:.5g}")


WAITS = ("data", "params", "peers")
"""What a worker waits for: records, values of params, other workers of its group."""
WINDOW_S = 10.0
SLOW = 1.5
"""A worker is slow if a step takes it so many times as long to compute as the median worker."""
MIN_STEPS = 3


class Sample(NamedTuple):
    """What a worker has told with a heartbeat.

    Attributes
    ----------
    time : float
        Seconds, of the scheduler's clock.
    step : int
    step_s : float
        Duration of all steps so far.
    waits : tuple of float
        Seconds so far, in the order of `WAITS`.
    """

    time: float
    step: int
    step_s: float
    waits: tuple[float, ...]


class Activity:
    """Curves of one job, and what each of its workers has done in the last seconds.

    Attributes
    ----------
    curves : Curves
    lr : float or None
        The newest learning rate.
    """

    def __init__(self) -> None:
        self.curves = Curves()
        self.lr: float | None = None
        self._first: dict[str, Sample] = {}
        self._samples: dict[str, deque[Sample]] = {}
        self._bytes: dict[int, tuple[int, int]] = {}

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Take an event of the job; metrics are means over the workers of a group."""
        if event["event"] == "metrics":
            self.curves.add(event)
            self.lr = event.get("lr", self.lr)
        elif event["event"] == "placed":  # units have begun again, perhaps in fewer processes
            self._first.clear()
            self._samples.clear()
            self._bytes.clear()

    def add_progress(self, progress: Mapping[str, Any], time: float) -> None:
        """Take what a process of the job has sent with a heartbeat at a time.

        Parameters
        ----------
        progress : mapping
            ``process``; ``workers``: of each its step, the duration of its steps, and of its waits, in seconds;
            ``bytes``: sent to and received from other processes.
        time : float
        """
        self._bytes[progress["process"]] = tuple(progress["bytes"])
        for unit, (step, step_s, *waits) in progress["workers"].items():
            sample = Sample(time, step, step_s, tuple(waits))
            samples = self._samples.setdefault(unit, deque())
            if samples and samples[-1].time == time:
                continue
            if samples and (step < samples[-1].step or step_s < samples[-1].step_s):
                samples.clear()  # it has started again
            if not samples:
                self._first[unit] = sample
            samples.append(sample)
            while len(samples) > 2 and samples[1].time <= time - WINDOW_S:
                samples.popleft()

    def totals(self) -> dict[str, dict[str, float]]:
        """Return for how many seconds each worker has waited since it started, by cause."""
        return {unit: dict(zip(WAITS, samples[-1].waits, strict=True)) for unit, samples in self._samples.items()}

    def traffic(self) -> dict[str, int]:
        """Return the bytes that processes have sent to, and received from, each other."""
        return {key: sum(each[i] for each in self._bytes.values()) for i, key in enumerate(("sent", "received"))}

    def left_s(self, n_steps: int) -> float | None:
        """Return the seconds until the slowest worker has made ``n_steps``, at its mean speed; None if unknown."""
        pairs = [(self._first[unit], samples[-1]) for unit, samples in self._samples.items()]
        if not pairs or any(last.step <= first.step for first, last in pairs):
            return None
        left = [
            (last.time - first.time) / (last.step - first.step) * max(n_steps - 1 - last.step, 0)
            for first, last in pairs
        ]
        return round(max(left), 1)

    def describe(self) -> dict[str, Any]:
        """Return ``curves``, see `Curves.describe`; ``bytes``, see `traffic`; ``lr``; ``workers``, see `workers`."""
        return {
            "curves": self.curves.describe(),
            "bytes": self.traffic(),
            "lr": self.lr if self.lr is None else _rounded(self.lr),
            "workers": self.workers(),
        }

    def workers(self) -> dict[str, dict[str, Any]]:
        """Return what each worker has done in the last seconds.

        Returns
        -------
        dict of str to dict
            By worker: ``step``; ``steps_per_s``; ``compute_ms`` of a step, None if there were too few; ``shares`` of
            the time in which it computed, and waited, by cause; ``slow``: how many times the median worker's its
            ``compute_ms`` is, or None if it is not slow.
        """
        rates = {unit: _of(samples[0], samples[-1]) for unit, samples in self._samples.items()}
        known = [facts["compute_ms"] for facts in rates.values() if facts["compute_ms"] is not None]
        usual = median_low(known) if known else 0.0
        for facts in rates.values():
            is_slow = usual > 0 and (facts["compute_ms"] or 0.0) > SLOW * usual
            facts["slow"] = round(facts["compute_ms"] / usual, 1) if is_slow else None
        return rates


def _of(first: Sample, last: Sample) -> dict[str, Any]:
    seconds, n_steps = last.time - first.time, last.step - first.step
    waits = [after - before for before, after in zip(first.waits, last.waits, strict=True)]
    compute = max(last.step_s - first.step_s - sum(waits), 0.0)
    spent = {"compute": compute, **dict(zip(WAITS, waits, strict=True))}
    # a step may have ended just after the heartbeat before the first one, and counts whole
    whole = max(seconds, sum(spent.values()), 1e-9)
    return {
        "step": last.step,
        "steps_per_s": round(n_steps / seconds, 2) if seconds else None,
        "compute_ms": round(1e3 * compute / n_steps, 3) if n_steps >= MIN_STEPS else None,
        "shares": {name: round(max(each, 0.0) / whole, 4) for name, each in spent.items()},
    }


if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX = "singa_dask"
MAX_WORKERS = 256
"""More of them would hold the scheduler up for longer than 10 ms."""

logger = logging.getLogger(__name__)


class JobsView(Protocol):
    """What describes the jobs."""

    def overview(self) -> dict[str, Any]:
        """Return a row for each job, and what is common to all."""

    def describe(self, job_id: str) -> dict[str, Any] | None:
        """Describe a job; None if it is not known."""

    def log(self, job_id: str) -> str | None:
        """Return the log of a job as a text; None if it is not known."""

    async def stack_text(self, job_id: str) -> str | None:
        """Return the stacks of the units of a job as a text; None if it does not run."""

    def live(self) -> Iterable[tuple[Mapping[str, Any], Activity]]:
        """Return the row and the activity of each job that has not ended."""


class JobsCollector:
    """Collects the metrics of the jobs on a scheduler; those of ended jobs are gone.

    Parameters
    ----------
    source : JobsView
    """

    def __init__(self, source: JobsView) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        """Return nothing: there may be several schedulers in a process, in tests."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all jobs."""
        try:
            jobs = list(self._source.live())
            rows = [row for row, _ in jobs]
            return [*self._of_states(rows), *self._of_progress(jobs), *self._of_workers(jobs)]
        except Exception:  # Dask's own metrics would be gone, too
            logger.exception("the metrics of jobs cannot be shown")
            return []

    def _of_states(self, rows: list[Mapping[str, Any]]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        jobs = GaugeMetricFamily(f"{PREFIX}_jobs", "Number of jobs that have not ended", labels=["state"])
        for state, n in Counter(row["state"] for row in rows).items():
            jobs.add_metric([state], n)
        states = GaugeMetricFamily(f"{PREFIX}_job_state", "1 for the state that a job is in", labels=["job", "state"])
        restarts = CounterMetricFamily(f"{PREFIX}_job_restarts", "Number of restarts", labels=["job"])
        for row in rows:
            states.add_metric([row["id"], row["state"]], 1)
            restarts.add_metric([row["id"]], row["restarts"])
        yield from (jobs, states, restarts)

    def _of_progress(self, jobs: list[tuple[Mapping[str, Any], Activity]]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        steps = GaugeMetricFamily(f"{PREFIX}_job_step", "Newest step of a job", labels=["job"])
        rates = GaugeMetricFamily(f"{PREFIX}_job_samples_per_second", "Samples trained on per second", labels=["job"])
        labels = ["job", "phase", "metric"]
        metrics = GaugeMetricFamily(f"{PREFIX}_job_metric", "Last value of a metric, of worker group 0", labels=labels)
        traffic = CounterMetricFamily(
            f"{PREFIX}_job_bytes", "Bytes of arrays between processes since they started", labels=["job", "direction"]
        )
        for row, activity in jobs:
            steps.add_metric([row["id"]], row["step"])
            if row["samples_per_s"] is not None:
                rates.add_metric([row["id"]], row["samples_per_s"])
            for phase, values in row["metrics"].items():
                for name, value in values.items():
                    metrics.add_metric([row["id"], phase, name], value)
            for direction, n in activity.traffic().items():
                traffic.add_metric([row["id"], direction], n)
        yield from (steps, rates, metrics, traffic)

    def _of_workers(self, jobs: list[tuple[Mapping[str, Any], Activity]]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        waits = CounterMetricFamily(
            f"{PREFIX}_job_wait_seconds",
            "Seconds that a worker has waited since it started: for records, params, or others of its group; "
            f"of {MAX_WORKERS} workers at most",
            labels=["job", "unit", "reason"],
        )
        workers = ((row["id"], *each) for row, activity in jobs for each in activity.totals().items())
        for job, unit, totals in islice(workers, MAX_WORKERS):
            for reason, seconds in totals.items():
                waits.add_metric([job, unit, reason], seconds)
        yield waits


PAGE = "singa"
BELOW = r"(?:/.*)?/" + PAGE
"""Dask does not tell below which prefix its pages are."""
FRESH_S = 0.5
"""How long an answer is used for other requests, so that many open tabs cost no more than two."""
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)


def http_token() -> str:
    """Return the token that requests have to send, ``distributed.singa-dask.http-token``; empty if none is needed."""
    return str(dask.config.get("distributed.singa-dask.http-token", None) or "")


class _Handler(web.RequestHandler):
    is_open = False
    """Whether no token is needed, as the answer tells nothing about jobs."""

    def prepare(self) -> None:
        """Refuse a request that does not send the token, if one is set."""
        self.request.uri = self.request.path  # what logs show
        scheme, _, given = self.request.headers.get("Authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else self.get_query_argument("token", "")
        token = http_token()
        if token and not self.is_open and not hmac.compare_digest(given.encode(), token.encode()):
            self.set_status(401)
            self.set_header("WWW-Authenticate", "Bearer")
            self.set_header("Cache-Control", "no-store")
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.finish("A token is needed. Send the header 'Authorization: Bearer TOKEN', or add ?token=TOKEN.\n")

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")


class _File(_Handler):
    """A file of the page."""

    CONTENTS: ClassVar[Mapping[str, bytes]] = {
        path.name: path.read_bytes() for path in sorted((Path(__file__).parent / "page").iterdir())
    }

    def initialize(self, name: str) -> None:
        self.name = name
        self.is_open = name != "index.html"

    def get(self) -> None:
        if self.request.path.endswith("/"):  # without the query, which may have the token
            self.redirect(f"../{PAGE}", permanent=True)
            return
        self.set_header("Content-Type", f"{TYPES[Path(self.name).suffix]}; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")  # by its ETag
        self.write(self.CONTENTS[self.name])


class _Answers:
    """JSON of answers, kept for `FRESH_S`."""

    def __init__(self) -> None:
        self._kept: dict[str | None, tuple[float, str]] = {}

    def get(self, key: str | None, make: Callable[[], Any]) -> str:
        """Return the answer to a question, as JSON."""
        now = time.monotonic()
        self._kept = {each: kept for each, kept in self._kept.items() if now - kept[0] < FRESH_S}
        if key not in self._kept:
            self._kept[key] = (now, as_json(make()))
        return self._kept[key][1]


class _Data(_Handler):
    """What is known of all jobs, or of the one with the ``id`` of a request."""

    def initialize(self, source: JobsView, answers: _Answers, of_job: bool) -> None:
        self.source, self.answers, self.of_job = source, answers, of_job

    def get(self) -> None:
        job_id = self.get_query_argument("id") if self.of_job else None
        make = self.source.overview if job_id is None else partial(self.source.describe, job_id)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.write(self.answers.get(job_id, make))


class _Text(_Handler):
    """The log, or the stacks, of the job with the ``id`` of a request."""

    def initialize(self, make: Callable[[str], str | Awaitable[str | None] | None]) -> None:
        self.make = make

    async def get(self) -> None:
        made = self.make(self.get_query_argument("id"))
        text = made if made is None or isinstance(made, str) else await made
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        if text is None:
            self.set_status(404)
        self.write("The scheduler does not know it, or not any more.\n" if text is None else text)


class _Metrics(_Handler):
    """The metrics of jobs alone, for Prometheus."""

    def initialize(self, source: JobsView) -> None:
        self.collector = JobsCollector(source)

    def get(self) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise web.HTTPError(404) from None
        registry = prometheus_client.CollectorRegistry()
        registry.register(self.collector)
        self.set_header("Content-Type", prometheus_client.CONTENT_TYPE_LATEST)
        self.write(prometheus_client.generate_latest(registry))


def as_json(value: Any) -> str:
    """Return JSON that every browser reads: null for numbers that are not finite."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(finite(value), separators=(",", ":"))


def add_page(scheduler: Scheduler, source: JobsView) -> None:
    """Add ``/singa`` to the pages of a scheduler, for good; does nothing if it has no HTTP server."""
    application = getattr(scheduler, "http_application", None)
    if application is None:
        return
    data = {"source": source, "answers": _Answers()}
    routes: list[tuple[str, type[_Handler], dict[str, Any]]] = [
        (f"{BELOW}/?", _File, {"name": "index.html"}),
        (f"{BELOW}/singa.css", _File, {"name": "singa.css"}),
        (f"{BELOW}/singa.js", _File, {"name": "singa.js"}),
        (f"{BELOW}/jobs.json", _Data, {**data, "of_job": False}),
        (f"{BELOW}/job.json", _Data, {**data, "of_job": True}),
        (f"{BELOW}/log.txt", _Text, {"make": source.log}),
        (f"{BELOW}/stacks.txt", _Text, {"make": source.stack_text}),
        (f"{BELOW}/metrics", _Metrics, {"source": source}),
    ]
    application.add_handlers(r".*$", routes)
    _add_link(scheduler)


def _add_link(scheduler: Scheduler) -> None:
    """Add the page to the navigation of Dask's dashboard, if that is on: its module is loaded then."""
    dashboard = sys.modules.get("distributed.dashboard.scheduler")
    if dashboard is not None:
        # not a documented way, and there is no other one: without it the page is there, but has no link
        with suppress(AttributeError, KeyError, TypeError):
            pages = dashboard.template_variables(scheduler)["pages"]
            if PAGE not in pages:
                pages.append(PAGE)


def add_dashboard(scheduler: Scheduler, source: JobsView) -> Callable[[], None]:
    """Show the jobs of a scheduler; return what removes the metrics. The page stays as long as its server."""
    add_page(scheduler, source)
    if http_token():  # Dask's /metrics is open to everyone
        return lambda: None
    try:
        import prometheus_client
    except ImportError:  # then Dask has no metrics either
        return lambda: None
    collector = JobsCollector(source)
    prometheus_client.REGISTRY.register(collector)
    return partial(prometheus_client.REGISTRY.unregister, collector)
