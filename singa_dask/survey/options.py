"""Options of a survey, and errors that advise an option."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from singa_dask.errors import DataError


class UnsureError(DataError):
    """Data can be read in several ways.

    ``question`` asks the user how to read them. ``choices`` are the possible answers, each with the fields of
    `SurveyOptions` that it changes.
    """

    def __init__(self, place: str, question: str, choices: Sequence[tuple[str, dict[str, Any]]], advice: str) -> None:
        self.question, self.choices = question, tuple(choices)
        super().__init__(f"{place}: {question} {advice}")


@dataclass(frozen=True)
class SurveyOptions:
    """The options of ``init``. The function ``run`` runs tasks on Dask workers; None without a cluster."""

    label: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    text: str = ""
    drop: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    separator: str = ""
    encoding: str = ""
    missing: str = ""
    classes: tuple[str, ...] = ()
    header: bool | None = None
    quotes: bool | None = None
    na_values: tuple[str, ...] = ()
    thousands: str = ""
    decimal: str = ""
    lags: int = 0
    test_split: float = 0.2
    split_by: str = ""
    copy: bool = False
    seed: int = 1
    net: str | None = None
    test: str = ""
    backend: str = ""
    run: Callable[..., Any] | None = field(default=None, compare=False)

    def of_tables(self) -> str:
        """Return the name of a given option that applies only to tables; empty if there is none."""
        names = ["target", "features", "text", "drop", "category", "encoding", "missing", "classes", "lags", "split_by"]
        names += ["na_values", "thousands", "decimal"]
        given = [name for name in names if getattr(self, name)]
        given += [name for name in ("header", "quotes") if getattr(self, name) is not None]
        return given[0] if given else ""


def worded(error: DataError, na_values: Sequence[str] = ()) -> DataError:
    """Convert an error that advises a key of ``store_conf`` to one that advises a command's option.

    ``na_values`` are the words that the user has passed already.
    """
    remedy = error.remedy
    if remedy is None or not remedy.text:
        return error
    if remedy.key == "charset":
        return error.saying("Or give --encoding, such as latin-1 or cp1252")
    if remedy.key == "na_values":
        return error.saying(f"Add --na-values {shlex.quote(','.join([*na_values, *remedy.values]))}")
    if remedy.key == "quotes":
        or_quoted = ", --quotes if they quote texts of several lines" if "true" in remedy.values else ""
        return error.saying(f"Pass --no-quotes if quotes are characters here{or_quoted}")
    if remedy.key == "separator":
        return error.saying(f"Pass --separator {shlex.quote(remedy.values[0])}")
    if remedy.key in ("missing", "unlabelled", "unknown") and remedy.values:
        return error.saying(f"Pass --option {remedy.key}={remedy.values[0]}.")
    if remedy.key == "label":
        return error.saying("Pass --label NAME")
    return error
