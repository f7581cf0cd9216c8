"""Columns that the options of a survey give by name, by pattern or by position."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from singa_dask.data.tables.lags import LagsConf
from singa_dask.errors import ConfigError
from singa_dask.survey.options import SurveyOptions
from singa_dask.wording import listed, suggest


def with_names(options: SurveyOptions, place: str, names: Sequence[str]) -> SurveyOptions:
    """Return options with names in place of patterns and positions of columns.

    ``names`` are the columns of the table at ``place``. ``features`` and ``drop`` may also name lags.

    Raises a `ConfigError` for a column that does not exist, for several columns where one is expected, and for a label
    or target that ``drop`` names. Patterns in ``drop`` may match labels and targets.
    """
    found: dict[str, Any] = {}
    for option in ("category", "label", "target"):
        found[option] = tuple(resolved(place, names, getattr(options, option), f"--{option}"))
    predicted = [*found["label"], *found["target"]]
    lags = LagsConf(columns=predicted, n=options.lags).names if options.lags and predicted else []
    for option in ("drop", "features"):
        found[option] = tuple(resolved(place, names, getattr(options, option), f"--{option}", lags))
    for each in options.drop:
        if resolved(place, names, [each], "--drop", lags)[0] in predicted and (each in names or is_position(each)):
            raise ConfigError(f"{place}: --drop {each}: this column is predicted. Leave it out of --drop.")
    for option in (name for name in ("text", "split_by") if getattr(options, name)):
        given, flag = getattr(options, option), f"--{option.replace('_', '-')}"
        found[option], *others = resolved(place, names, [given], flag)
        if others:
            shown = listed([found[option], *others])
            raise ConfigError(f"{place}: {flag} {given}: it matches {shown}. Expected one column.")
    return replace(options, **found)


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
