"""Records in webdataset tars. A record is adjacent files with one key: ``0001.png``, ``0001.cls``.

Headers are scanned when the store is opened, unless a manifest has the index. A block is one range of the file.
"""

from __future__ import annotations

import json
import logging
import posixpath
import tarfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many
from singa_dask.data.blocks import cut_blocks
from singa_dask.data.codecs.equal_names import NameNumbers
from singa_dask.data.codecs.record_schema import check_schema, schema_of
from singa_dask.data.codecs.record_values import as_values, is_numeric, value_name
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.stores.arrays.npy import NPY_DAMAGE, decode_npy
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES, ImageOptions, decode_image
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import DataError, Remedy
from singa_dask.fs.range_file import RangeFile
from singa_dask.fs.sources import SCANNED_BYTES, Bytes, ReadAhead, scan_ahead
from singa_dask.shown import plural
from singa_dask.texts import decode
from singa_dask.wording import listed

logger = logging.getLogger(__name__)

LABEL_SUFFIX = ".cls"
JSON_SUFFIX = ".json"
JSON_LABEL = "json."
VALUE_SUFFIXES = (*IMAGE_SUFFIXES, ".npy")
TEXT_SUFFIXES = (LABEL_SUFFIX, JSON_SUFFIX, ".txt")
INT32 = np.iinfo(np.int32)
HEADER_BYTES = tarfile.BLOCKSIZE
# errors that tarfile raises for damaged headers
DAMAGE = (tarfile.TarError, EOFError, OSError, OverflowError, RecursionError, ValueError)


class Member(NamedTuple):
    """A file of a record: its suffix (from the first dot on), and the range of its bytes."""

    suffix: str
    offset: int
    length: int


@dataclass
class TarIndex:
    """The records of a tar.

    Attributes
    ----------
    keys : list of str
        Names of the files of each record, without the suffix.
    members : list of list of Member
        Files of each record.
    offsets : list of int
        Offset of the first header of each record, and the offset of the end of the last file.
    others : Counter of str
        Suffixes of files that are not in the index, with their counts.
    """

    keys: list[str] = field(default_factory=list)
    members: list[list[Member]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_dict(cls, described: Any) -> TarIndex:
        """Return the index in a result of `to_dict`.

        Raises a `KeyError`, `TypeError` or `ValueError` for any other object.
        """
        members = [[Member(str(s), int(at), int(n)) for s, at, n in each] for each in described["members"]]
        index = cls([str(key) for key in described["keys"]], members, [int(offset) for offset in described["offsets"]])
        ranges = zip(index.members, index.offsets, index.offsets[1:], strict=False)
        inside = all(
            start < member.offset <= member.offset + member.length <= end
            for record, start, end in ranges
            for member in record
        )
        if not len(index.keys) == len(index.members) == len(index.offsets) - 1 or not inside:
            raise ValueError("not the index of a tar")
        return index

    def to_dict(self) -> dict[str, Any]:
        """Return the index as lists, for JSON."""
        return {"keys": self.keys, "members": self.members, "offsets": self.offsets}

    def found_suffixes(self) -> str:
        """Return the most frequent suffixes of files that are not in the index, as text for an error."""
        names = [name or "no suffix" for name, _ in self.others.most_common()]
        return f" Its files end in: {listed(names, 8)}." if names else ""


def scan_tar(source: Bytes, suffixes: Collection[str]) -> TarIndex:
    """Read all headers of a tar file, which may consist of several concatenated tars with the same names.

    Parameters
    ----------
    source : Bytes
    suffixes : collection of str
        Suffixes of the files that belong to records, in lower case. Files with other suffixes are ignored.

    Raises
    ------
    DataError
        A header is damaged, the tar is truncated, the files of a record are not adjacent, or a file is sparse or a
        link.
    """
    index, seen, archive, end = TarIndex(), set[str](), 0, 0
    for first, info in _infos(source):
        folder, base = posixpath.split(info.name)
        stem, dot, suffix = base.partition(".")
        key, suffix = posixpath.join(folder, stem), f"{dot}{suffix}".lower()
        if suffix not in suffixes or info.isdir():
            index.others.update([] if info.isdir() else [suffix])
            continue
        start = info.offset_data - HEADER_BYTES
        if not info.isreg() or info.issparse():
            what = "sparse" if info.issparse() else "a link" if info.islnk() or info.issym() else "a special file"
            raise DataError(f"{source.url}: {info.name} (byte {start}) is {what}, expected a plain file.")
        if first != archive:
            seen, archive = set(), first
        if key not in seen or key != index.keys[-1]:
            if key in seen:
                raise DataError(
                    f"{source.url}: the files of record {key} are not adjacent (byte {start}). Sort the files by name "
                    "before they are put into the tar: tar --sort=name."
                )
            seen.add(key)
            index.keys.append(key)
            index.members.append([])
            index.offsets.append(start)
        if any(suffix == member.suffix for member in index.members[-1]):
            raise DataError(f"{source.url}: record {key} has two files {suffix} (byte {start}), expected one.")
        index.members[-1].append(Member(suffix, info.offset_data, info.size))
        end = info.offset_data + info.size
    index.offsets.append(end)
    return index


def _infos(source: Bytes) -> Iterator[tuple[int, tarfile.TarInfo]]:
    """Yield each entry of concatenated tars (``cat a.tar b.tar``), with the offset of its archive.

    Raises a `DataError` if an entry is damaged, or the file is truncated.
    """
    start, file = 0 if source.size else None, RangeFile(ReadAhead(source).read, source.size)
    while start is not None:
        at = file.seek(start)
        try:
            with tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="replace") as archive:
                for info in archive:
                    if info.size < 0:
                        raise tarfile.HeaderError("negative size")
                    if info.offset_data + (info.size if info.isreg() else 0) > source.size:
                        raise DataError(
                            f"{source.url}: the file at byte {info.offset} is incomplete: the tar is truncated."
                        )
                    yield start, info
                    at = archive.offset
        except DataError:
            raise
        except DAMAGE as error:
            if at + HEADER_BYTES <= source.size:
                raise DataError(f"{source.url}: byte {at}: not a tar header, or a damaged one.") from error
        if at + HEADER_BYTES > source.size:
            raise DataError(f"{source.url}: there is no end-of-archive block at byte {at}: the tar is truncated.")
        start = _next_archive(source, at)
        # check what follows, because tarfile treats a damaged header as the end of the archive
        if start == at:
            raise DataError(f"{source.url}: byte {at}: not a tar header, or a damaged one.")


def _next_archive(source: Bytes, at: int) -> int | None:
    """Return the offset of the first nonzero block from ``at`` on; None if there is none."""
    for i, piece in enumerate(scan_ahead(source, at, source.size, SCANNED_BYTES)):
        if (data := np.frombuffer(piece, np.uint8)).any():
            return at + i * SCANNED_BYTES + int((data != 0).argmax()) // HEADER_BYTES * HEADER_BYTES
    return None


class TarOptions(ImageOptions, StoreOptions):
    """Options of webdataset tars."""

    label: str = "cls"
    """Place of the labels: ``cls``, or ``json.KEY`` for a key of the .json files (``json.a.b`` for a nested key)."""
    classes: Many[str] = KeyField(default=[])
    """Class names, by label, if labels are text."""


@STORES.register("webdataset")
class TarStore(RangeStore):
    """Records of a tar file.

    A record has an image, e.g. .png, or .npy with the data, and .cls with the label. Other files are left out. A
    warning names their suffixes, except for .json and .txt.

    Raises
    ------
    DataError
        A header is damaged, the file is truncated, or files with the same key are not adjacent.
    """

    options_class = TarOptions
    title = "a tar"
    gzipped = True
    holds = "images"
    decodes_ahead = True
    suffixes = (".tar", ".tar.gz", ".tgz")

    def index(self) -> None:
        label = self.options["label"]
        if label != "cls" and not (label.startswith(JSON_LABEL) and label != JSON_LABEL):
            raise DataError(
                f"{self.url}: the label is {label!r}, expected cls, or json.KEY with a key of the .json files."
            )
        self._label_suffix = LABEL_SUFFIX if label == "cls" else JSON_SUFFIX
        self.class_names = tuple(self.options["classes"])
        self._numbers = NameNumbers(self.class_names)
        source = self.open_source()
        self._index = self._open_index(source)
        if not self._index.keys:
            hint = self._index.found_suffixes() or " The file is empty."
            raise DataError(f"{self.url}: the tar has no records: it has no files {', '.join(VALUE_SUFFIXES)}.{hint}")
        self.blocks = cut_blocks(self.url, np.array(self._index.offsets, np.int64))
        first, second = self._index.offsets[:2]
        record = self._record(0, source.read(first, second - first), first)
        self.schema = schema_of({name: array[None] for name, array in record.items()})

    def _open_index(self, source: Bytes) -> TarIndex:
        """Return the index from the manifest, or else scan the headers."""
        known = self.manifest.opening if self.manifest is not None else {}
        try:
            if self._suffixes.items() <= known.items():
                return TarIndex.from_dict(known)
        except (KeyError, TypeError, ValueError):
            logger.warning("%s: the index in its manifest is ignored: it is damaged.", self.url)
        index = scan_tar(source, (*VALUE_SUFFIXES, self._label_suffix))
        if left_out := {name: n for name, n in index.others.items() if name not in TEXT_SUFFIXES}:
            summary = f"{plural(sum(left_out.values()), 'file')}.{index.found_suffixes()}"
            warn_once(logger, f"{self.url}: some files are left out: {summary}")
        return index

    @property
    def _suffixes(self) -> dict[str, Any]:
        """Suffixes that the index covers. An index of an older version may lack suffixes of images."""
        return {"label_suffix": self._label_suffix, "value_suffixes": list(VALUE_SUFFIXES)}

    def manifest_info(self) -> dict[str, Any]:
        return {**super().manifest_info(), **self._index.to_dict(), **self._suffixes}

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        block, first = self.blocks[block_id], int(self.starts[block_id])
        records = [self._record(i, data[0], block.offset) for i in range(first, first + block.n)]
        for i, record in enumerate(records, first):
            check_schema(
                {name: array[None] for name, array in record.items()},
                self.schema,
                f"{self.url}, block {block_id}, record {self._index.keys[i]}",
            )
        return {name: np.stack([record[name] for record in records]) for name in self.schema}

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        block, first = self.blocks[block_id], int(self.starts[block_id])
        (data,) = self.fetch(block_id)
        return salvage_rows(block.n, self.schema, lambda row: self._record(first + row, data, block.offset))

    def _record(self, index: int, data: memoryview, start: int) -> Arrays:
        """Decode a record. ``data`` are the bytes of the tar from offset ``start`` on."""
        where = f"{self.url}, record {self._index.keys[index]}"
        arrays: Arrays = {}
        for suffix, offset, length in self._index.members[index]:
            file = data[offset - start : offset - start + length]
            if suffix == self._label_suffix:
                arrays["label"] = np.array(self._label(bytes(file), where), np.int32)
                continue
            if suffix == ".npy":
                try:
                    array = decode_npy(file)
                except NPY_DAMAGE as error:
                    raise DataError(f"{where}: the npy file is damaged: {error}.") from error
                if not is_numeric(array.dtype):
                    raise DataError(f"{where}: the values are of type {array.dtype}, expected numbers.")
                name, array = value_name(array.dtype), as_values(array[None], where)[0]
            else:
                name, array = "pixel", decode_image(file, where, self.options["resize"], self.options["channels"])
            if arrays.keys() - {"label"}:
                raise DataError(f"{where}: the record has several files of images or data, expected one.")
            arrays[name] = array
        if not arrays.keys() - {"label"}:
            raise DataError(f"{where}: the record has none of the files {', '.join(VALUE_SUFFIXES)}.")
        return dict(sorted(arrays.items(), key=lambda item: item[0] == "label"))

    def _label(self, data: bytes, where: str) -> int:
        """Return the label in a .cls or .json file."""
        value: Any = decode(data, f"{where}, {self._label_suffix}").strip()
        if self._label_suffix == JSON_SUFFIX:
            value = self._json_value(data, where)
        if isinstance(value, str) and (number := self._numbers[value]) >= 0:
            return number
        try:
            label = int(value) if isinstance(value, (int, str)) else None
        except ValueError:
            label = None
        if label is not None and INT32.min <= label <= INT32.max:
            return label
        text = f"{value!r:.40}"
        if isinstance(value, str) and self.options["classes"]:
            known = listed(self.class_names)
            raise DataError(f"{where}: the label {text} is not among classes: {known}.")
        hint = " Set classes for labels that are text." if isinstance(value, str) and label is None else ""
        raise DataError(f"{where}: the label {text} is not a 32-bit integer.{hint}")

    def _json_value(self, data: bytes, where: str) -> Any:
        """Return the value of the label's key in a .json file."""
        key = self.options["label"].removeprefix(JSON_LABEL)
        try:
            value = json.loads(data)
        except (RecursionError, ValueError) as error:
            raise DataError(f"{where}: the JSON is damaged: {error}.") from error
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                keys = f"Keys: {listed(list(value))}" if isinstance(value, dict) else "It is not an object"
                raise DataError(f"{where}: its .json has no key {key!r}. {keys}.", remedy=Remedy("label"))
            value = value[part]
        return value
