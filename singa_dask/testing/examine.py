"""Run all checks of a part, and report all mistakes at once."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask.errors import ConfigError, PartError, SingaError

HINTS = {
    "NoneType": "The gradient of a source may be None: write it if source.grad is not None.",
    "read-only": "A gradient is only read: compute in tmp.",
}
"""Parts of Python's error messages -> what to do."""


def examine(name: str, checks: Mapping[str, Callable[[], None]]) -> list[str]:
    """Run all checks of a part; return the checks that were not possible on this machine, with reasons.

    Raises
    ------
    PartError
        Checks failed, or the first check was not possible. The message has all errors.
    """
    problems: dict[str, str] = {}
    left_out = []
    for title, check in checks.items():
        try:
            check()
        except Exception as error:
            if isinstance(error, ConfigError) and title != next(iter(checks)):
                left_out.append(f"{title}: {error}")
            else:
                problems.setdefault(_told(error), title)
    if problems:
        raise PartError("\n".join(f"{name}: {title}: {text}" for text, title in problems.items()))
    return left_out


def _told(error: Exception) -> str:
    """Return the message of an error. For unexpected errors, type and line are added."""
    if isinstance(error, SingaError):
        return str(error)
    entries = traceback.extract_tb(error.__traceback__)
    entry = next((frame for frame in reversed(entries) if "singa_dask" not in Path(frame.filename).parts), entries[-1])
    hint = "".join(f". {hint}" for what, hint in HINTS.items() if what in str(error))
    return f"{entry.filename}:{entry.lineno}: {type(error).__name__}: {error}{hint}"


def compare(what: str, actual: Any, wanted: Any, within: float, remedy: str) -> None:
    """Compare two arrays.

    Raises
    ------
    PartError
        The arrays differ by more than ``within``, relative to the largest value or to 1, whichever is larger. The
        message names the first wrong place and both values, and ends with ``remedy``.
    """
    actual, wanted = (np.asarray(values, np.float64) for values in (actual, wanted))
    if actual.shape != wanted.shape:
        raise PartError(f"{what} has shape {actual.shape}, expected {wanted.shape}. {remedy}")
    wrong = ~(np.abs(actual - wanted) <= within * max(1.0, np.abs(wanted).max(initial=0)))
    wrong &= ~(np.isnan(actual) & np.isnan(wanted))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        ratio = float((actual * wanted).sum() / (wanted**2).sum()) if wanted.any() else 0.0
        hint = f" All values are {ratio:.4g} times the expected ones." if np.allclose(actual, ratio * wanted) else ""
        raise PartError(f"{what} is {actual[place]:.6g} at {list(place)}, expected {wanted[place]:.6g}.{hint} {remedy}")
