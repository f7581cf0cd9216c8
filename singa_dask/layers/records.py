"""Stores as ``store_conf`` describes them: opened with the options that a job gives, and compared with it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.conf.model import Conf, Count, Field, Finding, Many, Positive, RegisteredName, Size, raw_value
from singa_dask.data import STORES, Store, detect, fs, open_store
from singa_dask.data.codecs.image import IMAGE_STORES
from singa_dask.data.stores.opening import is_pattern
from singa_dask.errors import DataError
from singa_dask.registry import suggest

__all__ = [
    "CacheConf",
    "StoreConf",
    "check_shape",
    "in_layout",
    "open_records",
    "open_text",
    "same_shape",
    "stored_shape",
]


class CacheConf(Conf):
    """``cache``: a directory on a local disk, shared by the processes of a host."""

    dir: str = ""
    """The directory: empty, new, or an earlier cache. Default: SINGA_DASK_CACHE, or else ~/.cache/singa-dask."""
    limit_gb: Positive = 20.0
    """Maximum size in 10**9 bytes; the least recently used blocks are deleted first."""


class StoreConf(Conf):
    """``store_conf``: records of a store, at any URL (SINGA's StoreProto and more)."""

    backend: Annotated[str, RegisteredName("store")] = ""
    """Format of the store; detected if empty."""
    path: str = ""
    """URL or path of the records."""
    separator: str = Field(default=",", min_length=1)
    """Characters that separate the values of a CSV line; each of them is a separator."""
    mean_file: str = ""
    """Store whose first record is subtracted from each record."""
    std_file: str = ""
    """Store whose first record divides each record."""
    mean_value: float | None = None
    """Number subtracted from each value, if there is no mean_file."""
    std_value: float | None = None
    """Number that divides each value, if there is no std_file."""
    batchsize: Many[Size] = Field(default=[])
    """Records per step of the whole worker group; or one number for each of its workers."""
    shape: Many[Size] = Field(default=[])
    """Shape of one record, without the batch; of an image always (channels, height, width)."""
    encoded: bool = False
    """Unused, in SINGA too."""
    random_skip: Count = 0
    """Start at a random record among the first this many."""
    has_label: bool = True
    """Whether a CSV line starts with its label."""
    header: bool | None = None
    """Whether a CSV file begins with a line of column names; detected if not given."""
    prefetching: bool = False
    """Unused: the next batch is always read while the net computes."""
    shuffle: Literal["none", "block", "full"] = "none"
    """Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch."""
    window: Size = 64
    """Blocks in a window for shuffle: block."""
    last_batch: Literal["wrap", "drop_last", "pad"] = "wrap"
    """An incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it."""
    on_error: Literal["raise", "skip", "replace"] = "raise"
    """A record that cannot be read: raise an error, use the next good one, or one drawn at random."""
    max_bad: float = Field(default=0.01, gt=0)
    """Maximum number of bad records that a worker tolerates: a whole number, or a fraction (below 1) of all records."""
    labels: Count = 0
    """Number of classes: a record with a label outside of 0 to labels - 1 is bad. 0 does not check labels."""
    resize: list[Size] = Field(default=[])
    """Height and width to which image files are scaled and cropped, for image-folder, image-list and webdataset."""
    channels: Literal[1, 3] = 3
    """Read image files as grey (1) or colour (3), for the same stores."""
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    """Order of the axes of images in the store: NHWC for records of (height, width, channels), as NumPy, Pillow and
    TensorFlow have them. ``shape`` is (channels, height, width) with both."""
    storage_options: dict[str, Any] = Field(default={})
    """Options for the file system of the URL, as fsspec takes them. Of hdfs:// these: client (native, pyarrow, webhdfs,
    hdfs3), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal, kerberos_keytab,
    kerberos_cache, and Hadoop's settings by their names, as dfs.replication."""
    user_conf: dict[str, Any] = Field(default={})
    """Keyword arguments of the store, a user's own or a built-in one."""
    cache: CacheConf | None = None
    """Cache blocks of remote file systems on a local disk of each host; no cache if absent."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Refuse a division by zero, and a part of a record."""
        if raw_value(data, "std_value", float, 1.0) == 0 or raw_value(data, "std_value", int, 1) == 0:
            yield ("std_value",), "expected another number than 0: records are divided by it."
        if len(raw_value(data, "resize", list, [])) not in (0, 2):
            yield ("resize",), "expected two numbers, height and width."
        shape = raw_value(data, "shape", list, [])
        if raw_value(data, "layout", str, "") == "NHWC" and shape and len(shape) != 3:
            yield ("layout",), f"NHWC is for images, whose shape is [channels, height, width]. Got shape {shape}."
        most = raw_value(data, "max_bad", float, 1.0)
        if most > 1 and not most.is_integer():
            yield ("max_bad",), f"expected a whole number, or a share below 1, got {most}."


def open_records(conf: StoreConf, url: str, backend: str | None, storage_options: fs.Options) -> Store:
    """Open a store with the options that ``store_conf`` has for its format.

    Raises
    ------
    DataError
        It cannot be opened, or does not take one of the options.
    """
    image = {"resize": conf.resize, "channels": conf.channels} if conf.resize or conf.channels != 3 else {}
    if (image or conf.user_conf) and not backend and not is_pattern(url):
        backend = detect(url, conf.storage_options)
    if image and backend not in IMAGE_STORES:
        message = "resize and channels are for image files. Convert with --resize, or give a backend of images."
        raise DataError(f"{url}: {message} Known: {', '.join(IMAGE_STORES)}.")
    if conf.user_conf and backend:
        _check_keywords(backend, url, conf.user_conf)
    return open_store(url, backend, storage_options, truncated=conf.on_error != "raise", **image, **conf.user_conf)


def open_text(conf: StoreConf, url: str, backend: str | None, storage_options: fs.Options) -> Store:
    """Open records of text lines as ``store_conf`` describes them.

    Raises
    ------
    DataError
        It cannot be opened.
    """
    return open_store(
        url,
        backend,
        storage_options,
        truncated=conf.on_error != "raise",
        separator=conf.separator,
        has_label=conf.has_label,
        shape=stored_shape(conf),
        header=conf.header,
    )


# -- shapes ------------------------------------------------------------------------------------------


def stored_shape(conf: StoreConf) -> tuple[int, ...]:
    """Return the shape that records have in the store: ``shape``, or (height, width, channels) of it."""
    shape = tuple(conf.shape)
    return (*shape[1:], shape[0]) if conf.layout == "NHWC" else shape


def same_shape(found: Sequence[int], expected: Sequence[int]) -> bool:
    """Tell whether two shapes differ by axes of length one alone; a flat one is never the same as one that is not."""
    return _squeezed(found) == _squeezed(expected)


def check_shape(url: str, found: Sequence[int], conf: StoreConf, what: str = "records") -> None:
    """Compare the shape of a store's records with what a job says.

    Axes of length one do not count. Flat records can have any shape of their size, and any record can be read as a flat
    one; everything else would put values in wrong places. ``what`` is what has the shape, for the error.

    Raises
    ------
    DataError
        They do not agree.
    """
    expected = stored_shape(conf)
    flat = min(len(_squeezed(found)), len(_squeezed(conf.shape))) <= 1
    if same_shape(found, expected) or (flat and math.prod(found) == math.prod(expected)):
        return
    said = "shape and layout: NHWC say" if conf.layout == "NHWC" else "shape says"
    hint = _hint(tuple(found), conf) if math.prod(found) == math.prod(expected) else ""
    raise DataError(f"{url}: {what} of {tuple(found)}, expected {expected}, as {said}.{hint}")


def _hint(found: tuple[int, ...], conf: StoreConf) -> str:
    """Say what to do about records that have the right size, but another shape."""
    shape = tuple(conf.shape)
    if same_shape(found, shape):
        return " These are channels first: leave layout out."
    if len(shape) == 3 and same_shape(found, (*shape[1:], shape[0])):
        return (
            " These look like (height, width, channels): set layout: NHWC to read them so, or store them channels "
            "first, with array.transpose(0, 3, 1, 2)."
        )
    if len(shape) == 3 and same_shape(found, (shape[2], *shape[:2])):
        return f" The shape of images is [channels, height, width]: set shape: {list(found)}."
    return f" Set shape: {list(found)}, or shape: [{math.prod(found)}] for values in a row."


def in_layout(values: npt.NDArray[Any], conf: StoreConf) -> npt.NDArray[Any]:
    """Return a batch of images (N, height, width, channels) as a view (N, channels, height, width) if so laid out."""
    if conf.layout != "NHWC" or values.size != len(values) * math.prod(conf.shape):
        return values
    return np.moveaxis(values.reshape(len(values), *stored_shape(conf)), -1, 1)


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _check_keywords(backend: str, url: str, given: Mapping[str, Any]) -> None:
    """Check that a store takes what ``user_conf`` says."""
    known = inspect.signature(STORES.find(backend)).parameters
    unknown = [] if any(each.kind == each.VAR_KEYWORD for each in known.values()) else sorted(given.keys() - known)
    if unknown:
        options = known.keys() - {"url", "storage_options"}
        hint = suggest(unknown[0], options) if options else "It takes none."
        raise DataError(f"{url}: {backend} takes no {unknown[0]!r} from user_conf. {hint}")
