"""Shows the jobs of a Dask scheduler by its HTTP server: the page ``/singa``, and metrics in ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from distributed import Scheduler

from singa_dask.runtime.dashboard.pages import PageSource, add_page
from singa_dask.runtime.dashboard.prometheus import MetricsSource, add_metrics, remove_metrics

__all__ = ["add_dashboard"]


class Source(PageSource, MetricsSource, Protocol):
    """What describes the jobs."""


def add_dashboard(scheduler: Scheduler, source: Source) -> Callable[[], None]:
    """Show the jobs of a scheduler; return what removes the metrics. The page stays as long as its server."""
    add_page(scheduler, source)
    return partial(remove_metrics, add_metrics(source))
