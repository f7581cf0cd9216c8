"""Describe the error that ended a unit: what failed, where, and whether the job may restart."""

from __future__ import annotations

import errno
import traceback
from typing import Any

from singa_dask import modules
from singa_dask.comm.message import Address
from singa_dask.errors import A_BUG, CommError, LostUnitError, SingaError, is_out_of_memory, text_of
from singa_dask.redaction import redact
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.worker import Worker

# errno of file systems and networks that may soon work again; missing, damaged or forbidden files are not among them
PASSING = {
    errno.EAGAIN,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EPIPE,
    errno.ETIMEDOUT,
}


def describe_error(address: Address, unit: Worker | Server | None, error: BaseException) -> dict[str, Any]:
    """Describe the error that ended a unit. If a user's code has failed, the description names its line.

    Returns
    -------
    dict
        - ``reason``: one line that names unit, step and layer.
        - ``cause``: the same line without unit, step and layer.
        - ``error``: the traceback.
        - ``exit_code``
        - ``expected``: whether ``reason`` is enough without the traceback.
        - ``retry``: see `may_succeed_again`.
        - ``unreadable``: URL or name of a checkpoint that could not be read.
    """
    where = str(address)
    if isinstance(unit, Worker):
        where += f", step {unit.step}"
        layer = unit.trainer.layer
        # many messages already begin with the name of the layer
        if layer and not text_of(error).startswith((f"layer {layer.name}:", f"layer {layer.name},")):
            where += f", layer {layer.name}"
    # modules.blame reads source files, which takes memory, so do not call it if memory has run out
    blame = None if is_out_of_memory(error) else modules.blame(error)
    if blame is not None:
        cause = f"{blame.place}: {blame.text}"
        facts = {"reason": f"{cause} ({where})", "cause": cause, "error": blame.traceback}
        return {**facts, "exit_code": 1, "expected": False, "retry": False}
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "reason": f"{where}: {text_of(error)}",
        "cause": text_of(error),
        "error": redact("".join([*lines, A_BUG])),
        "exit_code": error.exit_code if isinstance(error, SingaError) else 1,
        "expected": isinstance(error, SingaError) or is_out_of_memory(error),
        "retry": may_succeed_again(error),
        "unreadable": getattr(error, "unreadable", ""),
    }


def may_succeed_again(error: BaseException) -> bool:
    """Return whether a failed unit may succeed on another machine or a little later.

    The result is True for lost processes, and for file systems and networks that did not answer. The result is False
    for errors in the job, in its code or in its records, for a lack of memory, and for numbers that are not finite.
    """
    passed: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in passed:  # an error may be its own cause
        if isinstance(cause, CommError | LostUnitError | ConnectionError | TimeoutError):
            return True
        if isinstance(cause, OSError) and cause.errno in PASSING:
            return True
        passed.append(cause)
        cause = cause.__cause__
    return False
