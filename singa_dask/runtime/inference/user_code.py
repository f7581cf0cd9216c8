"""The user's own modules in an inference: loading them, and saying where their errors are."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.errors import SingaError, UnitError

__all__ = ["load_modules", "locate_errors"]


def load_modules(sources: Sequence[modules.Source]) -> None:
    """Load the user's modules; if there are none, keep those that are loaded."""
    if sources:
        modules.load(sources, REGISTRIES.values())


@contextlib.contextmanager
def locate_errors(where: Callable[[], str]) -> Iterator[None]:
    """Turn other exceptions into a `UnitError` that says where they happened, in the user's code if it was there."""
    try:
        yield
    except Exception as error:
        found = modules.blame(error)
        if found is not None:
            raise UnitError(f"{found.place}: {found.text} ({where()})\n{found.traceback.rstrip()}") from None
        if isinstance(error, SingaError):
            raise
        shown = traceback.format_exc().rstrip()
        raise UnitError(f"{where()}: {type(error).__name__}: {error}\n{shown}") from None
