"""Serves the page ``/singa``, and what it shows, by the HTTP server of the Dask scheduler.

The page is plain HTML, and asks for JSON once a second. It is no bokeh document, for two reasons. A Dask scheduler may
have no bokeh, or its dashboard off, and would need a second page then; this one is the same everywhere. And a bokeh
document keeps a session and a copy of all curves on the scheduler for each tab that is open.

Nothing can be changed from the page: it has GET requests only. Its script builds text nodes and never markup, and the
content security policy allows no script and no style but its own files.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from distributed import Scheduler
from tornado import web

from singa_dask.observe.json_text import finite
from singa_dask.runtime.dashboard.prometheus import MetricsSource, add_metrics, remove_metrics

PAGE = "singa"
PREFIX = r"(?:/.*)?/" + PAGE
"""Dask does not tell below which prefix its pages are."""
FRESH_S = 0.5
"""How long an answer is used for other requests, so that many open tabs cost no more than two."""
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)


class _PageSource(Protocol):
    """What describes the jobs."""

    def overview(self) -> dict[str, Any]:
        """Return a row for each job, and what is common to all."""

    def describe(self, job_id: str) -> dict[str, Any] | None:
        """Describe a job; None if it is not known."""


class _Handler(web.RequestHandler):
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

    @web.removeslash
    def get(self) -> None:
        self.set_header("Content-Type", f"{TYPES[Path(self.name).suffix]}; charset=utf-8")
        self.set_header("Cache-Control", "no-cache")  # by its ETag
        self.write(self.CONTENTS[self.name])


class _Answers:
    """JSON of answers, kept for `FRESH_S`."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, str]] = {}

    def get(self, key: str, make: Callable[[], Any]) -> str:
        """Return the answer to a question, as JSON."""
        now = time.monotonic()
        self._kept = {each: kept for each, kept in self._kept.items() if now - kept[0] < FRESH_S}
        if key not in self._kept:
            self._kept[key] = (now, as_json(make()))
        return self._kept[key][1]


class _Data(_Handler):
    def initialize(self, source: _PageSource, answers: _Answers) -> None:
        self.source, self.answers = source, answers

    def answer(self, key: str, make: Callable[[], Any]) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.write(self.answers.get(key, make))


class _Overview(_Data):
    def get(self) -> None:
        self.answer("", self.source.overview)


class _Job(_Data):
    def get(self) -> None:
        job_id = self.get_query_argument("id")
        self.answer(f"job {job_id}", lambda: self.source.describe(job_id))


def as_json(value: Any) -> str:
    """Return JSON that every browser reads: null for numbers that are not finite."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(finite(value), separators=(",", ":"))


def add_page(scheduler: Scheduler, source: _PageSource) -> None:
    """Add ``/singa`` to the pages of a scheduler, for good; does nothing if it has no HTTP server."""
    application = getattr(scheduler, "http_application", None)
    if application is None:
        return
    data = {"source": source, "answers": _Answers()}
    routes: list[tuple[str, type[_Handler], dict[str, Any]]] = [
        (f"{PREFIX}/?", _File, {"name": "index.html"}),
        (f"{PREFIX}/singa.css", _File, {"name": "singa.css"}),
        (f"{PREFIX}/singa.js", _File, {"name": "singa.js"}),
        (f"{PREFIX}/jobs.json", _Overview, data),
        (f"{PREFIX}/job.json", _Job, data),
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


class Source(_PageSource, MetricsSource, Protocol):
    """What describes the jobs."""


def add_dashboard(scheduler: Scheduler, source: Source) -> Callable[[], None]:
    """Show the jobs of a scheduler; return what removes the metrics. The page stays as long as its server."""
    add_page(scheduler, source)
    return partial(remove_metrics, add_metrics(source))
