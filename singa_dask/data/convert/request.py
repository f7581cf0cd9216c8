"""ConvertRequest: the arguments of a conversion, and their checks."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from singa_dask import fs
from singa_dask.data.convert.source_kinds import kind_options
from singa_dask.data.stores.store import STORES, Store
from singa_dask.errors import ConfigError
from singa_dask.wording import suggest

# kind of the sources -> pattern of their keys
KEYS = {"cifar": "%05d"}
# writer options that the conversion sets itself
BASICS = ("class_names", "table_facts")


@dataclass(frozen=True)
class ConvertRequest:
    """The arguments of `convert`, with absolute URLs."""

    kind: str
    sources: tuple[str, ...]
    destination: str
    backend: str
    shuffle: int | None
    split: Mapping[str, float]
    limit: int | None
    shards: int
    mean: str
    reading: Mapping[str, Any]
    writing: Mapping[str, Any]


def check_request(request: ConvertRequest) -> None:
    """Raise a `ConfigError` if an argument of `convert` is invalid."""
    if request.shards < 1:
        raise ConfigError(f"the number of shards is {request.shards}, expected 1 or more.")
    _check_options(request.reading, kind_options(request.kind), f"sources of kind {request.kind}")
    options = _writer_options(STORES.find(request.backend))
    _check_options(request.writing, options, f"what is written to {request.destination}")
    _check_shares(request.split)
    if request.mean:
        backend_of(request.mean)


def reader_options(kind: str, options: Mapping[str, Any], destination: str) -> dict[str, Any]:
    """Return the options of the reader. By default, a vocabulary is next to the destination."""
    if "vocabulary" not in kind_options(kind):
        return dict(options)
    beside = fs.join(posixpath.dirname(destination.partition("{split}")[0]), "vocab.txt")
    return {**options, "vocabulary": fs.absolute(options.get("vocabulary", beside))}


def parse_split(text: str) -> dict[str, float]:
    """Parse a split such as ``"train=0.8,test=0.2"``.

    Raises a `ConfigError` if the text has another form, a share is not positive, or the sum of the shares exceeds 1.
    """
    try:
        shares = {name.strip(): float(share) for name, share in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ConfigError(f"split {text!r}: expected name=share,..., e.g. train=0.8,test=0.2.") from None
    _check_shares(shares, text)
    return shares


def _check_shares(shares: Mapping[str, float], text: str = "") -> None:
    if not all(share > 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise ConfigError(f"split {text or dict(shares)!r}: shares must be above 0 and sum to at most 1.")


def _check_options(options: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in options:
        if name not in known:
            hint = suggest(name, known) if known else "It has no options."
            raise ConfigError(f"unknown option {name!r} of {what}. {hint}")


def _writer_options(target: type[Store]) -> list[str]:
    return [name for name in target.write_options if name not in BASICS]


def key_options(backend: str, pattern: str) -> dict[str, str]:
    """Return the option that sets the keys of records, if the format has keys."""
    return {"keys": pattern} if "keys" in _writer_options(STORES.find(backend)) else {}


def backend_of(destination: str) -> str:
    """Return the backend for the suffix of a file; raise a `ConfigError` if there is none."""
    known = [name for name in STORES.names() if STORES.find(name).can_write() and STORES.find(name).suffixes]
    for name in known:
        if destination.lower().endswith(STORES.find(name).suffixes):
            return name
    raise ConfigError(
        f"{destination}: cannot detect the format to write by the suffix. Pass it (--to). Known: {', '.join(known)}."
    )
