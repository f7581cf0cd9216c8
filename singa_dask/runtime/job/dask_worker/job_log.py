"""Send the log messages of a process to the client of a job."""

from __future__ import annotations

import logging
import threading

from singa_dask.redaction import redact
from singa_dask.runtime.units.job_of_thread import JobFilter
from singa_dask.runtime.units.unit_host import UnitHost

package_logger = logging.getLogger("singa_dask")
_log_lock = threading.Lock()


class LogToClient(logging.Handler):
    """Sends the log messages of this package that belong to one job to the client of that job."""

    def __init__(self, host: UnitHost) -> None:
        super().__init__(logging.INFO)
        self.addFilter(JobFilter(host.job_id))
        self.host = host
        self.level_before: int = logging.NOTSET

    def attach(self) -> None:
        """Start sending messages. If the level of the package's logger is above INFO, set it to INFO."""
        with _log_lock:
            others = [handler for handler in package_logger.handlers if isinstance(handler, LogToClient)]
            self.level_before = others[0].level_before if others else package_logger.level
            package_logger.addHandler(self)
            package_logger.setLevel(min(package_logger.level or logging.INFO, logging.INFO))

    def detach(self) -> None:
        """Stop sending messages. After the last job of the process, restore the level of the logger."""
        with _log_lock:
            package_logger.removeHandler(self)
            if not any(isinstance(handler, LogToClient) for handler in package_logger.handlers):
                package_logger.setLevel(self.level_before)

    def emit(self, record: logging.LogRecord) -> None:
        event = {"event": "log", "unit": record.threadName, "level": record.levelname, "time": record.created}
        self.host.emit({**event, "message": redact(record.getMessage())})
