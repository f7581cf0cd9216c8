"""ConvertRequest: the arguments of a conversion, and their checks."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from singa_dask import fs
from singa_dask.data.convert.source_kinds import kind_options, kinds
from singa_dask.data.stores.store import STORES, Store, check_can_write
from singa_dask.errors import ConfigError
from singa_dask.wording import suggest

# kind of the sources -> pattern of their keys
KEYS = {"cifar": "%05d"}
# writer options that the conversion sets itself
BASICS = ("class_names", "table_facts")


@dataclass(frozen=True)
class ConvertRequest:
    """The sources and the targets of a conversion.

    Attributes
    ----------
    kind : str
        Format of the sources, e.g. idx, cifar, csv, npz or image-folder; see `source_kinds.kinds`.
    sources, destination : URLs
        With ``split``, ``{split}`` in the destination is replaced by the name of the part. If the destination has no
        ``{split}``, the name is inserted before its suffix.
    backend : str
        Format of the store. By default the suffix of the destination decides.
    shuffle : int or None
        Seed of a random order of the records. By default, records keep the order of the sources.
    split : mapping of name to share
        Share of the records in each part, e.g. ``{"train": 0.8, "test": 0.2}``. If records have labels, the split is
        stratified by label; if they have several labels, by the first label.
    limit : int or None
        Maximum number of records.
    shards : int
        Number of stores for each part, named ``name-00000-of-00004.suffix``. To open all shards as one store, use a
        pattern as URL.
    mean : str
        URL for the mean record of the first part. The file is a store with one record without label. With the suffix
        .bin, the file has the format of SINGA's ``image_mean.bin``.
    reading, writing : mapping
        Options of the source's reader (csv: separator, has_label, shape; images: resize, channels; text: vocabulary,
        window; words: vocabulary, class_size) and of the store's writer (arrow, parquet: compression, block_bytes;
        kvfile: keys; lmdb: records_per_value; csv: separator).
    """

    kind: str
    sources: Sequence[str]
    destination: str
    backend: str = ""
    shuffle: int | None = None
    split: Mapping[str, float] = field(default_factory=dict)
    limit: int | None = None
    shards: int = 1
    mean: str = ""
    reading: Mapping[str, Any] = field(default_factory=dict)
    writing: Mapping[str, Any] = field(default_factory=dict)

    def resolved(self) -> ConvertRequest:
        """Return the request with absolute URLs, and with defaults for options that depend on other options.

        Raises a `ConfigError` if the kind is unknown, or no format has the suffix of the destination.
        """
        if self.kind not in kinds():
            raise ConfigError(f"unknown kind of source {self.kind!r}. {suggest(self.kind, kinds())}")
        backend, destination = self.backend or backend_of(self.destination), fs.absolute(self.destination)
        return replace(
            self,
            sources=tuple(map(fs.absolute, self.sources)),
            destination=destination,
            backend=backend,
            mean=fs.absolute(self.mean),
            reading=_reader_options(self.kind, self.reading, destination),
            writing={**key_options(backend, KEYS.get(self.kind, "%08d")), **self.writing},
        )


def check_request(request: ConvertRequest) -> None:
    """Raise a `ConfigError` if an argument of `convert` is invalid."""
    if request.shards < 1:
        raise ConfigError(f"the number of shards is {request.shards}, expected 1 or more.")
    _check_options(request.reading, kind_options(request.kind), f"sources of kind {request.kind}")
    check_can_write(request.backend)
    options = _writer_options(STORES.find(request.backend))
    _check_options(request.writing, options, f"what is written to {request.destination}")
    _check_shares(request.split)
    if request.mean:
        backend_of(request.mean)


def _reader_options(kind: str, options: Mapping[str, Any], destination: str) -> dict[str, Any]:
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
