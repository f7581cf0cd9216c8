"""HostPlugin: hosts the units of a job on a Dask worker."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker
from distributed.comm.addressing import get_address_host

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.comm import Address
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError, SingaError, UnitError
from singa_dask.runtime.job.job_plugin import plugin_name
from singa_dask.runtime.job.locality import host_names_of
from singa_dask.runtime.units.job_log import JobFilter
from singa_dask.runtime.units.unit import run_unit
from singa_dask.runtime.units.unit_host import UnitHost

__all__ = ["HostPlugin", "host_address", "host_unit"]

LOGGER = logging.getLogger("singa_dask")


class _ToDriver(logging.Handler):
    """Sends the log messages of this package to the driver of the job whose threads log them."""

    def __init__(self, host: UnitHost) -> None:
        super().__init__(logging.INFO)
        self.host = host
        self.addFilter(JobFilter(host.job_id))
        self.level_before: int = logging.NOTSET

    def attach(self) -> None:
        """Start; from now on the logger of the package passes on what is INFO or more."""
        others = [handler for handler in LOGGER.handlers if isinstance(handler, _ToDriver)]
        self.level_before = others[0].level_before if others else LOGGER.level
        LOGGER.addHandler(self)
        LOGGER.setLevel(min(LOGGER.level or logging.INFO, logging.INFO))

    def detach(self) -> None:
        """Stop; when no job runs in this process any more, the logger has the level from before them."""
        LOGGER.removeHandler(self)
        if not any(isinstance(handler, _ToDriver) for handler in LOGGER.handlers):
            LOGGER.setLevel(self.level_before)

    def emit(self, record: logging.LogRecord) -> None:
        event = {"event": "log", "unit": record.threadName, "level": record.levelname, "time": record.created}
        self.host.emit({**event, "message": record.getMessage()})


class HostPlugin(WorkerPlugin):
    """Starts a `UnitHost` on each Dask worker of the job; does nothing on others.

    Parameters
    ----------
    job_id : str
    job : str
        The job as JSON.
    workers : sequence of str
        Address of the Dask worker of each process.
    deals : mapping of str to sequence of int, optional
        By input layer: the order in which its blocks are dealt.
    sources : sequence of Source
        The user's own modules.
    """

    def __init__(
        self,
        job_id: str,
        job: str,
        workers: Sequence[str],
        deals: Mapping[str, Sequence[int]] | None = None,
        sources: Sequence[modules.Source] = (),
    ) -> None:
        self.name = plugin_name(job_id)
        self.job_id = job_id
        self.job = job
        self.workers = list(workers)
        self.deals = dict(deals or {})
        self.sources = list(sources)
        self.host: UnitHost | None = None
        self.failure: UnitError | None = None

    def setup(self, worker: Worker) -> None:
        """Start the host and listen for signals of the driver; if that fails, keep the error for `host_address`."""
        if worker.address not in self.workers:
            return
        try:
            self._load_modules(worker)
            self.host = self._start(worker)
        except Exception as error:
            found = modules.blame(error)
            if found is None and not isinstance(error, SingaError):
                raise
            why = f"{found.place}: {found.text}" if found else str(error)
            self.failure = UnitError(f"process {self.workers.index(worker.address)} at {worker.address}: {why}")
            return
        self._handler = _ToDriver(self.host)
        self._handler.attach()
        worker.handlers[self.name] = self._signal
        worker.metrics[self.name] = self._steps  # goes with the heartbeat of the Dask worker

    def _load_modules(self, worker: Worker) -> None:
        """Load the user's modules, unless a running job in this process has different ones of the same names."""
        texts = {source.name: source for source in self.sources}
        for other in worker.plugins.values():
            if isinstance(other, HostPlugin) and other.host is not None:
                changed = [source.file for source in other.sources if texts.get(source.name, source) != source]
                if changed:
                    raise ConfigError(
                        f"{', '.join(changed)}: job {other.job_id} runs in this process with another version of it. "
                        "Rename the file, or wait for that job."
                    )
        modules.load(self.sources, REGISTRIES.values())

    def _start(self, worker: Worker) -> UnitHost:
        transport = None
        if len(self.workers) > 1:
            scheme, _, endpoint = worker.address.partition("://")
            transport = partial(
                Transport,
                f"{scheme}://{endpoint.rpartition(':')[0]}",
                listen_args=worker.security.get_listen_args("worker"),
                connect_args=worker.security.get_connection_args("worker"),
                name=f"transport-{self.job_id}",
            )
        machines = map(get_address_host, self.workers)
        return UnitHost(
            self.job_id,
            self.workers.index(worker.address),
            JobConf.from_json(self.job, REGISTRIES),
            transport,
            partial(worker.log_event, self.name),
            self.deals,
            host_names_of(worker),
            [process for process, machine in enumerate(machines) if machine == get_address_host(worker.address)],
        )

    def _steps(self, worker: Worker) -> dict[str, int]:
        return self.host.steps() if self.host else {}

    def _signal(self, action: str, reason: str = "") -> None:
        assert self.host is not None
        if action == "stop":
            self.host.request_stop()
        else:
            self.host.abort({"reason": reason}, tell=False)

    def teardown(self, worker: Worker) -> None:
        """Close the host, also if the Dask worker closes during a job."""
        if self.host is None:
            return
        worker.handlers.pop(self.name, None)
        worker.metrics.pop(self.name, None)
        host, self.host = self.host, None
        self._handler.detach()
        host.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "host": None}


def host_address(job_id: str, dask_worker: Worker) -> str:
    """Return the address of the host on a Dask worker; for ``Client.run``.

    Raises
    ------
    UnitError
        The host could not be started.
    """
    return _host_of(dask_worker, job_id).address


def host_unit(
    job_id: str, unit: tuple[str, int, int], peers: Sequence[str], url: str, resume: str | None, init_from: list[str]
) -> dict[str, Any]:
    """Run one unit on this Dask worker; a task of the job."""
    host = _host_of(get_worker(), job_id)
    host.connect(peers)
    return run_unit(host, Address(*unit), url, resume, init_from)


def _host_of(worker: Worker, job_id: str) -> UnitHost:
    plugin = worker.plugins[plugin_name(job_id)]
    assert isinstance(plugin, HostPlugin)
    if plugin.failure is not None:
        raise plugin.failure
    assert plugin.host is not None
    return plugin.host
