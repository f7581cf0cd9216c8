"""Open a file, gzipped or not, as a source of bytes."""

from __future__ import annotations

import contextlib
import re

from singa_dask.errors import DataError
from singa_dask.fs.decompression import gunzip, limit_of
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.sources import Bytes, BytesInMemory
from singa_dask.fs.urls import Options
from singa_dask.texts import decode

GZIP_MAGIC = b"\x1f\x8b"
# magic numbers of unsupported compressors, whose files are refused
OTHER_COMPRESSORS = {
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
# number of bytes at the start of a file that identify the compressor
MARK_BYTES = 10


def open_bytes(url: str, storage_options: Options = None) -> Bytes:
    """Open a file as a source of bytes. A gzipped file is decompressed; see `gunzip`.

    Raises
    ------
    DataError
        The file is missing, is compressed in another format or damaged, or decompresses to more than the limit.
    """
    reader = RangeReader(url, storage_options)
    try:
        head = bytes(reader.read(0, min(MARK_BYTES, reader.size)))
        refuse_compressed(url, head)
    except BaseException:
        reader.close()
        raise
    if not head.startswith(GZIP_MAGIC):
        return reader
    try:
        data = BytesInMemory(url, gunzip(reader, limit_of(storage_options)))
        data.common_version = reader.common_version
        return data
    finally:
        reader.close()


def refuse_compressed(url: str, head: bytes) -> None:
    """Raise a `DataError` if a file begins like a compressed file that is not gzip."""
    for name, begin in OTHER_COMPRESSORS.items():
        if begin.match(head):
            raise DataError(f"{url}: compressed with {name}. Decompress it, or compress it with gzip.")


def decode_text(url: str, storage_options: Options = None) -> str:
    """Return the text of a file, gzipped or not, with its line ends; see `singa_dask.texts.decode`."""
    with contextlib.closing(open_bytes(url, storage_options)) as source:
        return decode(bytes(source.read(0, source.size)), url)
