"""Blocks of the input and output layers: where records are, and how they are read (SINGA's ``*_conf``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from singa_dask.conf.model import Conf, Count, Finding, Many, NonNegative, Positive, RegisteredName, Size, raw_value

__all__ = [
    "CacheConf",
    "CharRNNConf",
    "LMDBDataConf",
    "MnistConf",
    "OneHotConf",
    "RGBImageConf",
    "ShardDataConf",
    "StoreConf",
]


class CacheConf(Conf):
    """``cache``: a directory of ours on a local disk, shared by the processes of a host."""

    dir: str = ""
    """Empty, new, or an earlier cache; SINGA_DASK_CACHE or else ~/.cache/singa-dask when empty."""
    limit_gb: Positive = 20.0
    """Most that it may hold, in 10**9 bytes; what was not used for longest is let go of."""


class StoreConf(Conf):
    """``store_conf``: records of a store, at any URL (SINGA's StoreProto, with some keys of ours)."""

    backend: Annotated[str, RegisteredName("store")] = ""
    """Format of the store; found from the path when empty."""
    path: str = ""
    """URL or path of the records."""
    separator: str = Field(default=",", min_length=1)
    """Characters that part the values of a CSV line; any one of them does."""
    mean_file: str = ""
    """Store whose first record is subtracted from each record."""
    std_file: str = ""
    """Store whose first record divides each record."""
    mean_value: float | None = None
    """Number subtracted from each value, when there is no mean_file."""
    std_value: float | None = None
    """Number that divides each value, when there is no std_file."""
    batchsize: Many[Size] = Field(default=[])
    """Records a step for the whole worker group; or one number for each of its workers."""
    shape: Many[Size] = Field(default=[])
    """Shape of one record, without the batch; of an image always (channels, height, width)."""
    encoded: bool = False
    """Never used by SINGA, nor here."""
    random_skip: Count = 0
    """Start at a random record among the first this many."""
    has_label: bool = True
    """Whether a CSV line starts with its label."""
    header: bool | None = None
    """Whether a CSV file begins with a line of column names; found out when not given."""
    prefetching: bool = False
    """Read the next batch while the net computes; always done here."""
    shuffle: Literal["none", "block", "full"] = "none"
    """Order of records: as stored, windows of blocks shuffled, or wholly shuffled in each epoch."""
    window: Size = 64
    """Blocks that are shuffled among each other when shuffle is block."""
    last_batch: Literal["wrap", "drop_last", "pad"] = "wrap"
    """Records left at the end of an epoch: go on with the next one, leave them out, or fill up their batch."""
    on_error: Literal["raise", "skip", "replace"] = "raise"
    """A record that cannot be read: an error; or the next good one takes its place; or one drawn at random does."""
    max_bad: float = Field(default=0.01, gt=0)
    """Most bad records that a worker passes over: a whole number, or a share (below 1) of all, at least one record."""
    labels: Count = 0
    """A record is bad unless its label is one of 0 to this number less one; 0 does not look at labels."""
    resize: list[Size] = Field(default=[])
    """Height and width to which image files are scaled and cropped, for image-folder, image-list and webdataset."""
    channels: Literal[1, 3] = 3
    """Image files as grey (1) or in colour (3), for the same stores."""
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    """Order of the axes of images in the store: NHWC for records of (height, width, channels), as NumPy, Pillow and
    TensorFlow have them. ``shape`` is (channels, height, width) with both."""
    storage_options: dict[str, Any] = Field(default={})
    """Options for the file system of the URL, as fsspec takes them. Of hdfs:// these: client (native, pyarrow, webhdfs,
    hdfs3), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal, kerberos_keytab,
    kerberos_cache, and Hadoop's settings by their names, as dfs.replication."""
    user_conf: dict[str, Any] = Field(default={})
    """Keyword arguments for a store of the user's own; also for one of ours."""
    cache: CacheConf | None = None
    """Keep what is read from a file system that is not local on a disk of each host; not kept when absent."""

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


class CharRNNConf(Conf):
    """``char_rnn_conf``: characters of a text (SINGA's CharRNNProto)."""

    path: str = ""
    """URL or path of the text: UTF-8, gzipped or not."""
    vocab_path: str = ""
    """File that holds each character once; its place there is its number. When empty, the characters of the text in the
    order of their codes."""
    unroll_len: Size = 50
    """Characters a step; equal to unroll_len of the net."""
    batchsize: Size = 1
    """Places in the text that are read at the same time, for the whole worker group."""


class OneHotConf(Conf):
    """``onehot_conf`` (SINGA's OnehotProto)."""

    vocab_size: Count = 0
    """Length of a one-hot row."""


class ShardDataConf(Conf):
    """``sharddata_conf``: SINGA's deprecated data layer (DataProto)."""

    path: str
    """Folder or file of the records."""
    batchsize: Size
    """Records a step for the whole worker group."""
    random_skip: Count = 0
    """Start at a random record among the first this many."""


class LMDBDataConf(ShardDataConf):
    """``lmdbdata_conf``: SINGA's deprecated LMDB layer (DataProto)."""


class MnistConf(Conf):
    """``mnist_conf``: SINGA's deprecated parser of digit images; the distortion keys were never used."""

    norm_a: Positive = 1.0
    """Divides each pixel."""
    norm_b: float = 0.0
    """Subtracted after the division."""
    kernel: Count = 0
    """Unused."""
    sigma: float = 0.0
    """Unused."""
    alpha: float = 0.0
    """Unused."""
    beta: float = 0.0
    """Unused."""
    gamma: float = 0.0
    """Unused."""
    resize: Count = 0
    """Unused."""
    elastic_freq: Count = 0
    """Unused."""


class RGBImageConf(Conf):
    """``rgbimage_conf``: crop, mirror and scale images (SINGA's RGBImageProto)."""

    scale: NonNegative = 1.0
    """Multiplies each pixel."""
    cropsize: Count = 0
    """Height and width to cut out, anywhere in training, else from the centre; 0 keeps the whole image."""
    mirror: bool = False
    """Mirror half of the training images."""
    meanfile: str = ""
    """Store whose first record is subtracted; read by the deprecated RGBImage layer only."""
