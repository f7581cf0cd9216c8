"""Index of a tar: which files belong to which record, and where they are. Headers are parsed by `tarfile`."""

from __future__ import annotations

import posixpath
import tarfile
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from singa_dask.data.fs.byte_source import Bytes, ReadAhead
from singa_dask.data.fs.range_file import RangeFile
from singa_dask.errors import DataError

__all__ = ["Member", "TarIndex", "scan_tar"]

HEADER_BYTES = tarfile.BLOCKSIZE
# errors that damaged headers cause in tarfile
DAMAGE = (tarfile.TarError, EOFError, OSError, OverflowError, RecursionError, ValueError)
MAX_SHOWN = 8


class Member(NamedTuple):
    """A file of a record: its suffix, from the first dot on, and the range of its bytes."""

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
        Offset of the first header of each record, and the end of the last file.
    others : Counter of str
        Suffixes of the files that are not in the index.
    """

    keys: list[str] = field(default_factory=list)
    members: list[list[Member]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_dict(cls, found: Any) -> TarIndex:
        """Return the index that `to_dict` described.

        Raises
        ------
        KeyError, TypeError or ValueError
            It is not such a description.
        """
        members = [[Member(str(s), int(at), int(n)) for s, at, n in each] for each in found["members"]]
        index = cls([str(key) for key in found["keys"]], members, [int(offset) for offset in found["offsets"]])
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
        """Format the most frequent of the other suffixes, for an error."""
        names = [name or "no suffix" for name, _ in self.others.most_common(MAX_SHOWN)]
        return f" Its files end in: {', '.join(names)}." if names else ""


def scan_tar(source: Bytes, suffixes: Collection[str]) -> TarIndex:
    """Read all headers of a tar.

    Parameters
    ----------
    source : Bytes
    suffixes : collection of str
        Suffixes of the files that belong to records, in lower case; others are ignored.

    Raises
    ------
    DataError
        A header is damaged, the tar is truncated, the files of a record are not adjacent, or a file is sparse or a
        link.
    """
    index, seen, end = TarIndex(), set[str](), 0
    for info in _infos(source):
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
        if not index.keys or key != index.keys[-1]:
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


def _infos(source: Bytes) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of a tar; raise a `DataError` where one is damaged or truncated."""
    if not source.size:
        return
    at, file = 0, RangeFile(ReadAhead(source))
    try:
        with tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="replace") as archive:
            for info in archive:
                if info.size < 0:
                    raise tarfile.HeaderError("negative size")
                if info.offset_data + (info.size if info.isreg() else 0) > source.size:
                    raise DataError(
                        f"{source.url}: the file at byte {info.offset} is incomplete: the tar is truncated."
                    )
                yield info
                at = archive.offset
    except DataError:
        raise
    except DAMAGE as error:
        if at + HEADER_BYTES <= source.size:
            raise DataError(f"{source.url}: byte {at}: not a tar header, or a damaged one.") from error
    if at + HEADER_BYTES > source.size:
        raise DataError(f"{source.url}: no end-of-archive block at byte {at}: the tar is truncated.")
    # tarfile ends at a damaged header as at the end
    if any(source.scan(at, HEADER_BYTES)):
        raise DataError(f"{source.url}: byte {at}: not a tar header, or a damaged one.")
