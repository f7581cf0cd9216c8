"""Admission: lets senders of the job in, and keeps strangers from costing more than little."""

from __future__ import annotations

import asyncio
import logging
import time

from singa_dask.comm.greeting import Guest, StrangerError, admit
from singa_dask.comm.secret import Secret
from singa_dask.comm.wire import Wire

__all__ = ["Admission"]

MAX_WAITING = 256
"""Connections that have not said who they are. One more closes the oldest of them: who knows the secret needs one
exchange of messages, and comes again if it has bad luck, so strangers cannot keep it out by waiting."""
_TELL_S = 60.0

logger = logging.getLogger(__name__)


class Admission:
    """Admits connections whose sender knows the secret of the job in time.

    All methods are called in the thread of the event loop.

    Parameters
    ----------
    secret : Secret
    timeout_s : float
        Time of a connection for TLS and the hello together.
    """

    def __init__(self, secret: Secret, timeout_s: float) -> None:
        self._secret = secret
        self._timeout_s = timeout_s
        self._waiting: dict[Wire, None] = {}  # the oldest first
        self._n_strangers = 0
        self._tell_at = 0.0

    async def admit(self, wire: Wire) -> Guest | None:
        """Return who has connected, or None if it is a stranger.

        Raises
        ------
        CommError
            It knows the secret, and says no hello of this protocol.
        OSError
            The connection breaks.
        """
        self._waiting[wire] = None
        if len(self._waiting) > MAX_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.close()
        try:
            return await asyncio.wait_for(admit(wire, self._secret), self._timeout_s)
        except StrangerError as error:
            self._note(wire.peer, str(error))
        except (TimeoutError, asyncio.TimeoutError):  # two classes in Python 3.10
            self._note(wire.peer, f"it has not said hello in {self._timeout_s:g} s")
        finally:
            self._waiting.pop(wire, None)
        return None

    def _note(self, peer: str, reason: str) -> None:
        """Warn of a stranger; of many once a minute, as nobody else shall fill the disk with logs."""
        self._n_strangers += 1
        now = time.monotonic()
        if now < self._tell_at:
            return
        self._tell_at = now + _TELL_S
        more = f" ({self._n_strangers} connections of strangers so far)" if self._n_strangers > 1 else ""
        logger.warning("closed the connection from %s: %s%s", peer, reason, more)
