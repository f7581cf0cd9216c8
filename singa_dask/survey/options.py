"""Options of a survey, and errors that tell which option helps."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from singa_dask.errors import ConfigError, DataError
from singa_dask.wording import listed, suggest


class UnsureError(DataError):
    """Data can be read in several ways.

    ``question`` asks the user for the way. ``choices`` are the possible answers, each with the fields of
    `SurveyOptions` that it changes.
    """

    def __init__(self, place: str, question: str, choices: Sequence[tuple[str, dict[str, Any]]], advice: str) -> None:
        self.question, self.choices = question, tuple(choices)
        super().__init__(f"{place}: {question} {advice}")


@dataclass(frozen=True)
class SurveyOptions:
    """The options of ``init``. ``run`` runs tasks on Dask workers, if there are any."""

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

    def by_name(self, place: str, names: Sequence[str]) -> SurveyOptions:
        """Return the options with names in place of patterns and positions of columns.

        ``names`` are the columns of the table at ``place``. ``features`` and ``drop`` may also name lags.

        Raises a `ConfigError` for a column that does not exist, and for several columns where one is expected.
        """
        found: dict[str, Any] = {}
        for option in ("category", "label", "target"):
            found[option] = tuple(resolved(place, names, getattr(self, option), f"--{option}"))
        predicted = [*found["label"], *found["target"]]
        from singa_dask.data.tables.lags import LagsConf  # late, because options are made for the help of commands

        lags = LagsConf(columns=predicted, n=self.lags).names if self.lags and predicted else []
        for option in ("drop", "features"):
            found[option] = tuple(resolved(place, names, getattr(self, option), f"--{option}", lags))
        for option in (name for name in ("text", "split_by") if getattr(self, name)):
            given, flag = getattr(self, option), f"--{option.replace('_', '-')}"
            found[option], *others = resolved(place, names, [given], flag)
            if others:
                shown = listed([found[option], *others])
                raise ConfigError(f"{place}: {flag} {given}: it matches {shown}. Expected one column.")
        return replace(self, **found)


def is_position(text: str) -> bool:
    """Return whether a text gives a column by position: ``first``, ``last`` or a number from 1 on."""
    return text in ("first", "last") or text.isdecimal()


def resolved(
    place: str, names: Sequence[str], wanted: Sequence[str], option: str, lags: Sequence[str] = ()
) -> list[str]:
    """Return the names of the columns that an option lists, each once.

    The option may give a name, a pattern, a position from 1 on, ``first`` or ``last``. ``lags`` are columns without a
    position.
    """
    known, columns = [*filter(None, names), *lags], dict[str, None]()
    for each in wanted:
        chosen = [each] if each in (*names, *lags) else fnmatch.filter(known, each)
        if not chosen and is_position(each):
            at = {"first": 0, "last": len(names) - 1}.get(each, -1) if each.isalpha() else int(each) - 1
            chosen = [names[at]] if 0 <= at < len(names) else []
        if not chosen:
            raise ConfigError(f"{place}: no column {each!r} for {option}. {suggest(each, known)}")
        columns |= dict.fromkeys(chosen)
    return [*columns]


def worded(error: DataError, na_values: Sequence[str] = ()) -> DataError:
    """Return an error that advises options of the command in place of keys of ``store_conf``.

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
