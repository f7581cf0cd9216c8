"""Return the values of a job by key path, and the differences between two jobs."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

ABSENT = "-"
WIDTH = 60
"""Maximum length of a value in a comparison of two runs, in characters."""


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return the values of a job by key path, in the syntax of ``--set``. A list of scalars is one value.

    Items of other lists are identified by their ``name``, e.g. ``neuralnet.layer[fc1].type``. A second item with the
    same name is ``[fc1#2]``.
    """
    if isinstance(value, Mapping) and value:
        return {
            key: each
            for name, inner in value.items()
            for key, each in flatten(inner, f"{path}.{name}" if path else str(name)).items()
        }
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        values: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for i, each in enumerate(value):
            name = str(each.get("name") or i) if isinstance(each, Mapping) else str(i)
            seen[name] = seen.get(name, 0) + 1
            values |= flatten(each, f"{path}[{name}{f'#{seen[name]}' if seen[name] > 1 else ''}]")
        return values
    return {path: value}


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the two values of each key whose values differ; None stands for a missing key."""
    keys = dict.fromkeys([*first, *second])
    return {key: [first.get(key), second.get(key)] for key in keys if first.get(key) != second.get(key)}


def shown_pair(*values: Any) -> list[str]:
    """Return two values as texts. Long texts are cut, to start shortly before their first difference."""
    texts = [_shown(value) for value in values]
    if max(map(len, texts)) <= WIDTH:
        return texts
    start = max(len(posixpath.commonprefix(texts)) - 10, 0)
    dots = "…" if start else ""
    return [f"{dots}{text[start : start + WIDTH]}{'…' if len(text) > start + WIDTH else ''}" for text in texts]


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) and value else json.dumps(value)
