"""Stop: whether a job was asked to stop, and by whom."""

from __future__ import annotations

from singa_dask.runtime.job.job_end import Failure
from singa_dask.runtime.job.names import NOTICES, SIGNAL_CODES
from singa_dask.runtime.job.state import events as ev


class Stop:
    """The request to stop a job with a checkpoint. It is false until there is a request.

    Attributes
    ----------
    signal, by : str
        Name and sender of the first signal; see `ev.Signal`.
    """

    def __init__(self) -> None:
        self.signal = self.by = ""
        self._n_signals = 0  # number of signals from the job's client

    def __bool__(self) -> bool:
        return bool(self.signal)

    def abort(self, event: ev.Signal) -> Failure | None:
        """Count a signal; return the failure of the job if the signal ends it immediately."""
        self._n_signals += self._is_own(event)
        if event.name != "SIGKILL" and self._n_signals < 2:
            return None
        how = f"killed by {event.by}" if event.by else f"aborted by a second {event.name}"
        return Failure(how, SIGNAL_CODES.get(event.name, 1))

    def request(self, event: ev.Signal) -> str:
        """Request the stop; return a message for the user, empty if the job is already stopping."""
        if self and not self._is_own(event):
            return ""
        if not self:
            self.signal, self.by = event.name, event.by
        again = f" Send {event.name} again to abort." if self._is_own(event) else ""
        return f"{event.by or event.name}: stopping with a checkpoint.{again}"

    @staticmethod
    def _is_own(event: ev.Signal) -> bool:
        """Return whether the user of the job's client sent a signal, so that a second one aborts the job."""
        return not event.by and event.name not in NOTICES
