"""Pages about jobs on the HTTP server of a Dask scheduler."""

from __future__ import annotations

import hmac
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import dask.config
from distributed import Scheduler
from tornado import web

from singa_dask.observe.json_values import finite
from singa_dask.runtime.dashboard.prometheus import JobsCollector, JobsView

PAGE = "singa"
BELOW = r"(?:/.*)?/" + PAGE
"""Pattern for the path of the page below any prefix. Dask does not expose the prefix of its own pages."""
FRESH_S = 0.5
"""Seconds for which an answer is reused, so that many open tabs cause no more work than two tabs."""
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)


def http_token() -> str:
    """Return the setting ``distributed.singa-dask.http-token``; empty if requests need no token."""
    return str(dask.config.get("distributed.singa-dask.http-token", None) or "")


class _Handler(web.RequestHandler):
    is_open = False
    """Whether requests need no token, because the answers contain nothing about jobs."""

    def prepare(self) -> None:
        """Refuse a request without the token, if a token is set."""
        self.request.uri = self.request.path  # remove the query, which may contain the token, from logs
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
    """Serves a file of the page."""

    CONTENTS: ClassVar[Mapping[str, bytes]] = {
        path.name: path.read_bytes() for path in sorted((Path(__file__).parent / "page").iterdir())
    }

    def initialize(self, name: str) -> None:
        self.name = name
        self.is_open = name != "index.html"

    def get(self) -> None:
        if self.request.path.endswith("/"):  # use the path without the query, which may contain the token
            self.redirect(f"../{PAGE}", permanent=True)
            return
        self.set_header("Content-Type", f"{TYPES[Path(self.name).suffix]}; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")  # browsers ask each time, and compare the ETag
        self.write(self.CONTENTS[self.name])


class _Answers:
    """Caches JSON answers for `FRESH_S` seconds."""

    def __init__(self) -> None:
        self._kept: dict[str | None, tuple[float, str]] = {}

    def get(self, key: str | None, make: Callable[[], Any]) -> str:
        """Return the answer for a key. If the answer is missing or too old, ``make`` creates a new answer."""
        now = time.monotonic()
        self._kept = {each: kept for each, kept in self._kept.items() if now - kept[0] < FRESH_S}
        if key not in self._kept:
            self._kept[key] = (now, as_json(make()))
        return self._kept[key][1]


class _Data(_Handler):
    """Serves the description of all jobs, or of the job with the ``id`` in the request."""

    def initialize(self, source: JobsView, answers: _Answers, of_job: bool) -> None:
        self.source, self.answers, self.of_job = source, answers, of_job

    def get(self) -> None:
        job_id = self.get_query_argument("id") if self.of_job else None
        make = self.source.overview if job_id is None else partial(self.source.describe, job_id)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        answer = self.answers.get(job_id, make)
        if answer == "null":
            self.set_status(404)
        self.write(answer)


class _Text(_Handler):
    """Serves the log or the stacks of the job with the ``id`` in the request."""

    def initialize(self, make: Callable[[str], str | Awaitable[str | None] | None]) -> None:
        self.make = make

    async def get(self) -> None:
        made = self.make(self.get_query_argument("id"))
        text = made if made is None or isinstance(made, str) else await made
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        if text is None:
            self.set_status(404)
        self.write("The scheduler does not know this job, or has forgotten it.\n" if text is None else text)


class _Metrics(_Handler):
    """Serves the metrics of jobs, without Dask's own metrics, for Prometheus."""

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
    """Return JSON that every browser can read. Numbers that are not finite become null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(finite(value), separators=(",", ":"))


def add_page(scheduler: Scheduler, source: JobsView) -> None:
    """Add the page ``/singa`` to a scheduler, unless it has no HTTP server.

    The page cannot be removed later.
    """
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
    """Add a link to the page to the navigation of Dask's dashboard, if the dashboard is loaded."""
    dashboard = sys.modules.get("distributed.dashboard.scheduler")
    if dashboard is not None:
        # this attribute is undocumented; without it, the page works but is not linked
        with suppress(AttributeError, KeyError, TypeError):
            pages = dashboard.template_variables(scheduler)["pages"]
            if PAGE not in pages:
                pages.append(PAGE)


def add_dashboard(scheduler: Scheduler, source: JobsView) -> Callable[[], None]:
    """Add the page and the metrics of jobs to a scheduler; return a function that removes the metrics.

    The page cannot be removed.
    """
    add_page(scheduler, source)
    if http_token():  # Dask's /metrics needs no token, so it must not have metrics of jobs
        return lambda: None
    try:
        import prometheus_client
    except ImportError:  # without prometheus_client, Dask has no metrics either
        return lambda: None
    collector = JobsCollector(source)
    prometheus_client.REGISTRY.register(collector)
    return partial(prometheus_client.REGISTRY.unregister, collector)
