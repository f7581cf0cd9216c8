"""Messages for mistakes in the values of a job, in place of pydantic's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from singa_dask.conf.foreign_names import suggest_key, written_out
from singa_dask.redaction import HIDDEN
from singa_dask.wording import suggest

PLAIN = "plain"
MISPLACED_KEY = "unknown_key"

WANTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
}
BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def shown(value: object) -> str:
    """Return a short form of a value for an error message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def explain(found: Mapping[str, Any], keys: Collection[str], block: str = "") -> str:
    """Return the message for an error of pydantic.

    Parameters
    ----------
    found : mapping
        One of ``ValidationError.errors()``.
    keys : collection of str
        Keys of the model.
    block : str
        Name of the model's class.
    """
    kind, value, limits = found["type"], found["input"], found.get("ctx", {})
    if "storage_options" in found["loc"]:
        value = HIDDEN
    if kind in (PLAIN, MISPLACED_KEY):
        return str(found["msg"])
    if kind == "extra_forbidden":
        return f"unknown key. {suggest_key(str(found['loc'][-1]), keys)}"
    if kind == "missing":
        return "this required key is missing."
    if kind in BOUNDS:
        words, limit = BOUNDS[kind]
        return f"expected {words} {limits[limit]}, got {shown(value)}."
    if kind == "literal_error":
        names = [name for name in re.findall(r"'([^']*)'", limits["expected"]) if name]
        return f"unknown value {shown(value)}. {suggest(value if isinstance(value, str) else '', names)}"
    if kind == "too_short":
        return f"expected at least {limits['min_length']} in the list, got {limits['actual_length']}."
    if kind == "string_too_short":
        return "expected a text that is not empty."
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"expected a mapping of keys to values, got {shown(value)}.{written_out(block, value)}"
    if kind in WANTED:
        hint = " Put it in quotes." if kind == "string_type" and isinstance(value, (bool, int, float)) else ""
        return f"expected {WANTED[kind]}, got {shown(value)}.{hint}"
    return f"{found['msg']} (got {shown(value)})."


Finding: TypeAlias = tuple[tuple[str | int, ...], str]


class Mistake(NamedTuple):
    """A mistake in the values of a model; ``kind`` is PLAIN or MISPLACED_KEY."""

    kind: str
    path: tuple[str | int, ...]
    message: str


def as_error(title: str, mistakes: Iterable[Mistake], model: object) -> ValidationError:
    """Return a ValidationError that lists mistakes; the input of each is the repaired ``model``."""
    details = [
        InitErrorDetails(type=PydanticCustomError(kind, "{message}", {"message": message}), loc=path, input=model)
        for kind, path, message in mistakes
    ]
    return ValidationError.from_exception_data(title, details)
