# Written by: singa-dask schema --stub
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict, Unpack

class Common(TypedDict, total=False):
    name: str
    r"""Name, unique in each net."""
    srclayers: str | Sequence[str]
    r"""Layers that this layer reads, in the order of its type."""
    param: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    r"""Params in the order of the type: weights before bias."""
    include: Literal["train", "val", "test"] | Sequence[Literal["train", "val", "test"]]
    r"""Phases whose nets have this layer; all if empty."""
    exclude: Literal["train", "val", "test"] | Sequence[Literal["train", "val", "test"]]
    r"""Phases whose nets lack this layer; deprecated, use include."""
    share_src_blobs: bool
    r"""Let an activation overwrite its source's memory."""
    unroll_len: int | None
    r"""Number of time steps; by default the net's."""
    unroll_conn_type: Literal["OneToOne", "OneToAll", "FirstToLast", "Customized"] | Sequence[Literal["OneToOne", "OneToAll", "FirstToLast", "Customized"]]
    r"""Connection of each source's time steps to this layer's; by default OneToAll for a source with one step, else
    OneToOne."""
    unroll_steps: Sequence[Sequence[Sequence[int]]]
    r"""For each Customized source and each time step of this layer, the time steps of the source to read."""
    shift: int | Sequence[int]
    r"""For OneToOne, the number of time steps by which each source is delayed."""
    partition_dim: int | None
    r"""Split over the worker group by batch (0), by feature (1), or not (-1); by default the net's."""
    location: int | None
    r"""Worker of the group that computes the whole layer."""
    user_conf: Mapping[str, Any]
    r"""Options of a user's layer."""

def Accuracy(
    *,
    topk: int = ...,
    argsort_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""ArgSort that also adds the share of rows with their label among the first to the metric "accuracy".  Sources:
    scores, labels.

    topk: Labels kept for each record, best first."""

def Activation(
    *,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = f(x), elementwise; f is ``activation_conf.type``: RELU, SIGMOID, TANH or STANH.  With ``share_src_blobs``
    it computes in the memory of its source if that layer does not read its output again, with the same results.
    (SINGA loses the incoming gradient.) In training a BatchNorm, a Convolution or an Add computes a ReLU behind
    it."""
CudnnActivation = Activation

def AdaptivePooling(
    height: int,
    width: int,
    *,
    pool: Literal["MAX", "AVG"] = ...,
    adaptivepooling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, C, OH, OW) = the mean of each of OH OW windows of x (N, C, H, W), or its largest value: ``pool``.
    Window i has the rows from floor(i H / OH) to ceil((i + 1) H / OH) - 1, and columns likewise, so that images
    of any size give ``height`` OH and ``width`` OW. Neighbouring windows share a row if OH does not divide H.

    height: Height of the output.

    width: Width of the output.

    pool: Take the mean of the pixels of a window, or the largest value."""

def Add(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x1 + x2 + ..., of two or more sources of one shape. Each source has the gradient of y.  The shortcut
    connection of He et al. (2016), "Deep residual learning for image recognition"."""

def ArgSort(
    *,
    topk: int = ...,
    argsort_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Columns of the ``argsort_conf.topk`` highest scores of each row, best first: (N, topk), as floats.  Of equal
    scores the higher column comes first.

    topk: Labels kept for each record, best first."""

def BatchNorm(
    *,
    momentum: float = ...,
    epsilon: float = ...,
    bm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale (x - m) / sqrt(v + epsilon) + shift for each channel of x (N, C, H, W), or each column of x (N, C).
    In training m and v are mean and variance of the worker's batch, over all rows and pixels; in tests they are
    running averages, ``mean = momentum mean + (1 - momentum) m``, and the variance likewise. A batch of images
    (N, H, W) has one channel. Params, each (C,), with initial values: scale (1), shift (0), mean (0), variance
    (1). The updater does not change mean and variance; several workers average them.

    momentum: Decay rate of the running mean and variance.

    epsilon: Added to the variance."""
BM = BatchNorm
CudnnBM = BatchNorm

def CSVInput(
    *,
    backend: str = ...,
    path: str = ...,
    split: Mapping[str, Any] | None = ...,
    mean_file: str = ...,
    std_file: str = ...,
    mean_value: float | None = ...,
    std_value: float | None = ...,
    standardise: bool = ...,
    batchsize: int | Sequence[int] = ...,
    shape: int | Sequence[int] = ...,
    encoded: bool = ...,
    random_skip: int = ...,
    prefetching: bool = ...,
    shuffle: Literal["none", "block", "full"] = ...,
    window: int = ...,
    last_batch: Literal["wrap", "drop_last", "pad"] = ...,
    on_error: Literal["raise", "skip", "replace"] = ...,
    max_bad: float = ...,
    labels: int = ...,
    layout: Literal["NCHW", "NHWC"] = ...,
    storage_options: Mapping[str, Any] = ...,
    augment: Mapping[str, Any] | None = ...,
    cache: Mapping[str, Any] | None = ...,
    io_threads: int = ...,
    in_flight_mb: int = ...,
    memory_mb: int | None = ...,
    max_decompressed_mb: float = ...,
    resize: int | Sequence[int] | None = ...,
    channels: Literal[1, 3] = ...,
    separator: str = ...,
    has_label: bool = ...,
    features: str | Sequence[str] = ...,
    label: str | Sequence[str] = ...,
    target: str | Sequence[str] = ...,
    weight: str = ...,
    missing: float | str = ...,
    unlabelled: Literal["error", "skip"] = ...,
    categories: Mapping[str, Any] = ...,
    encoding: Literal["one_hot", "index"] = ...,
    unknown: Literal["error", "ignore"] = ...,
    texts: Mapping[str, Any] = ...,
    numbers: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Reads text lines: a label (if ``has_label``), then numbers.  They are separated by any character of
    ``separator``. A first line with the names of the columns is skipped.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training or only the test records, split by a rule: ``{part: train, test_share: 0.2}``.
    By default all.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store whose first record divides each record.

    mean_value: Number subtracted from each value, if there is no mean_file.

    std_value: Number that divides each value, if there is no std_file.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set it in the layers of the test and validation nets, too: they
    use the same numbers.

    batchsize: Records per step of the whole worker group, which its workers share as equally as possible; or a
    list with one number for each of them.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this many first ones.

    prefetching: Unused: batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Blocks in a window for shuffle: block; of Parquet with large row groups, row groups.

    last_batch: An incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it.

    on_error: For a record that cannot be read: raise an error, use the next good record, or use a random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. For hdfs:// they are client (native,
    pyarrow, webhdfs), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal,
    kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem or decoded ahead, and
    not used yet; one block is always allowed. Part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are in flight, read, shuffled, or kept for the next epoch. Default: 1280, or less if a third of the
    memory of the process, divided among its layers that read stores, is less; a layer that shuffles gets twice
    the share of a test layer.

    max_decompressed_mb: Maximum decompressed size of a gzipped file, or of a block of another format, in 10**6
    bytes.

    resize: Height and width to which image files are scaled and cropped, for image-folder, image-list, image-
    parquet, parquet, tfrecord, webdataset and Caffe's encoded images in lmdb. A JPEG of at least four times the
    size is decoded at a half, a quarter or an eighth of its size, and then scaled; values differ by about 0.4 of
    255 on average.

    channels: Channels of image files, for the same stores: grey (1) or colour (3).

    separator: Characters that each separate values of a CSV line; one character for a table with named columns.
    Excel's first line ``sep=;`` takes precedence.

    has_label: Whether a CSV line starts with its label; for a table with named columns, whether label, target and
    weight are read.

    features: Columns of a table that a record consists of: names or patterns, e.g. ``pixel*``. By default all
    columns of numbers except label, target and weight. A column of vectors, lists of numbers of one length, gives
    as many values; by default vectors are features of a table without columns of numbers.

    label: Column of a table with the label: integers, or strings, which become the names of the classes. Several
    columns are several labels of a record, each with its own classes, for LabelInput layers. If features, label
    and target are not given, the only column called label, labels, y, class, target or targets.

    target: Columns of a table with numbers to predict, the values of a TargetInput layer.

    weight: Column of a table with the weight of each record in training, the values of a WeightInput layer:
    numbers from 0 on.

    missing: Treatment of missing values, which are nulls, NaN, and in CSV empty fields and pandas' names for
    them: error, skip (leave the record out), mean (replace those of features by their mean in the training data),
    or a number that replaces those of features.

    unlabelled: Records of a table without a label or target: error, or skip (leave the record out).

    categories: Columns of a table whose values are names, and these names in order; if the list is empty, the
    sorted names in the training data. The name ``''`` stands for missing values. A listed name is not a missing
    value, e.g. a country NA in CSV.

    encoding: Whether a feature among categories becomes a value 0 or 1 for each name, or the index of its name.

    unknown: Treatment of unknown categories of a feature: error, or ignore (read them as zeros, which needs
    ``one_hot``).

    texts: Columns of a table whose values are texts, and their encoding: ``{text: {length: 64}}``. The vocabulary
    is learned from the training data, and kept in checkpoints.

    numbers: Columns of a table whose numbers are texts, and their form: ``{price: {thousands: ",", unit: "$"}}``.
    Checkpoints keep it, and ``predict`` and ``serve`` read such texts, or numbers.

    na_values: Words that mean a missing value, such as unknown, in all columns of a table except texts. A word
    that ``categories`` lists is a name there.

    lags: Earlier values of columns of a time series, taken from preceding records: ``{columns: load, n: 3}`` adds
    load_lag1 to load_lag3 to a table that lacks them.

    header: Whether a CSV file begins with a line of column names; detected if not given. If false, the columns of
    a table are called 1, 2, ... by position.

    quotes: Whether fields of a CSV table may be in double quotes. If false, a quote is a character of its field.
    If not given, quoted texts of several lines are refused where each of their lines could be a record.

    charset: Encoding of a CSV table, by Python's name, such as latin-1; it must extend ASCII."""

def CSVOutput(
    *,
    backend: str = ...,
    path: str = ...,
    split: Mapping[str, Any] | None = ...,
    mean_file: str = ...,
    std_file: str = ...,
    mean_value: float | None = ...,
    std_value: float | None = ...,
    standardise: bool = ...,
    batchsize: int | Sequence[int] = ...,
    shape: int | Sequence[int] = ...,
    encoded: bool = ...,
    random_skip: int = ...,
    prefetching: bool = ...,
    shuffle: Literal["none", "block", "full"] = ...,
    window: int = ...,
    last_batch: Literal["wrap", "drop_last", "pad"] = ...,
    on_error: Literal["raise", "skip", "replace"] = ...,
    max_bad: float = ...,
    labels: int = ...,
    layout: Literal["NCHW", "NHWC"] = ...,
    storage_options: Mapping[str, Any] = ...,
    augment: Mapping[str, Any] | None = ...,
    cache: Mapping[str, Any] | None = ...,
    io_threads: int = ...,
    in_flight_mb: int = ...,
    memory_mb: int | None = ...,
    max_decompressed_mb: float = ...,
    resize: int | Sequence[int] | None = ...,
    channels: Literal[1, 3] = ...,
    separator: str = ...,
    has_label: bool = ...,
    features: str | Sequence[str] = ...,
    label: str | Sequence[str] = ...,
    target: str | Sequence[str] = ...,
    weight: str = ...,
    missing: float | str = ...,
    unlabelled: Literal["error", "skip"] = ...,
    categories: Mapping[str, Any] = ...,
    encoding: Literal["one_hot", "index"] = ...,
    unknown: Literal["error", "ignore"] = ...,
    texts: Mapping[str, Any] = ...,
    numbers: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Write a line of text for each record: its label, if the source has labels, and its values with six decimals.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training or only the test records, split by a rule: ``{part: train, test_share: 0.2}``.
    By default all.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store whose first record divides each record.

    mean_value: Number subtracted from each value, if there is no mean_file.

    std_value: Number that divides each value, if there is no std_file.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set it in the layers of the test and validation nets, too: they
    use the same numbers.

    batchsize: Records per step of the whole worker group, which its workers share as equally as possible; or a
    list with one number for each of them.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this many first ones.

    prefetching: Unused: batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Blocks in a window for shuffle: block; of Parquet with large row groups, row groups.

    last_batch: An incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it.

    on_error: For a record that cannot be read: raise an error, use the next good record, or use a random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. For hdfs:// they are client (native,
    pyarrow, webhdfs), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal,
    kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem or decoded ahead, and
    not used yet; one block is always allowed. Part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are in flight, read, shuffled, or kept for the next epoch. Default: 1280, or less if a third of the
    memory of the process, divided among its layers that read stores, is less; a layer that shuffles gets twice
    the share of a test layer.

    max_decompressed_mb: Maximum decompressed size of a gzipped file, or of a block of another format, in 10**6
    bytes.

    resize: Height and width to which image files are scaled and cropped, for image-folder, image-list, image-
    parquet, parquet, tfrecord, webdataset and Caffe's encoded images in lmdb. A JPEG of at least four times the
    size is decoded at a half, a quarter or an eighth of its size, and then scaled; values differ by about 0.4 of
    255 on average.

    channels: Channels of image files, for the same stores: grey (1) or colour (3).

    separator: Characters that each separate values of a CSV line; one character for a table with named columns.
    Excel's first line ``sep=;`` takes precedence.

    has_label: Whether a CSV line starts with its label; for a table with named columns, whether label, target and
    weight are read.

    features: Columns of a table that a record consists of: names or patterns, e.g. ``pixel*``. By default all
    columns of numbers except label, target and weight. A column of vectors, lists of numbers of one length, gives
    as many values; by default vectors are features of a table without columns of numbers.

    label: Column of a table with the label: integers, or strings, which become the names of the classes. Several
    columns are several labels of a record, each with its own classes, for LabelInput layers. If features, label
    and target are not given, the only column called label, labels, y, class, target or targets.

    target: Columns of a table with numbers to predict, the values of a TargetInput layer.

    weight: Column of a table with the weight of each record in training, the values of a WeightInput layer:
    numbers from 0 on.

    missing: Treatment of missing values, which are nulls, NaN, and in CSV empty fields and pandas' names for
    them: error, skip (leave the record out), mean (replace those of features by their mean in the training data),
    or a number that replaces those of features.

    unlabelled: Records of a table without a label or target: error, or skip (leave the record out).

    categories: Columns of a table whose values are names, and these names in order; if the list is empty, the
    sorted names in the training data. The name ``''`` stands for missing values. A listed name is not a missing
    value, e.g. a country NA in CSV.

    encoding: Whether a feature among categories becomes a value 0 or 1 for each name, or the index of its name.

    unknown: Treatment of unknown categories of a feature: error, or ignore (read them as zeros, which needs
    ``one_hot``).

    texts: Columns of a table whose values are texts, and their encoding: ``{text: {length: 64}}``. The vocabulary
    is learned from the training data, and kept in checkpoints.

    numbers: Columns of a table whose numbers are texts, and their form: ``{price: {thousands: ",", unit: "$"}}``.
    Checkpoints keep it, and ``predict`` and ``serve`` read such texts, or numbers.

    na_values: Words that mean a missing value, such as unknown, in all columns of a table except texts. A word
    that ``categories`` lists is a name there.

    lags: Earlier values of columns of a time series, taken from preceding records: ``{columns: load, n: 3}`` adds
    load_lag1 to load_lag3 to a table that lacks them.

    header: Whether a CSV file begins with a line of column names; detected if not given. If false, the columns of
    a table are called 1, 2, ... by position.

    quotes: Whether fields of a CSV table may be in double quotes. If false, a quote is a character of its field.
    If not given, quoted texts of several lines are refused where each of their lines could be a record.

    charset: Encoding of a CSV table, by Python's name, such as latin-1; it must extend ASCII."""

def CharRNN(
    *,
    path: str = ...,
    vocab_path: str = ...,
    batchsize: int = ...,
    char_rnn_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Windows of a text, (N, unroll_len + 1): column t is the character of step t, and the last one only a label.
    The text is divided into segments of equal length, one for each row of all worker groups. Each batch has the
    next window of each segment, which starts at the last character of the previous window. After a window that
    starts in the last ``unroll_len`` characters of a segment, all rows start again. That window ends in the next
    segment, after the last segment at the start of the text. (SINGA 0.3 reads past the end of the text there.)

    path: URL or path of the text: UTF-8, gzipped or not.

    vocab_path: File that holds each character once, in the order of their numbers. When empty, the characters of
    the text in the order of their code points.

    batchsize: Number of segments of the text read in parallel, for the whole worker group."""

def CharRNNOutput(
    *,
    path: str = ...,
    vocab_path: str = ...,
    batchsize: int = ...,
    char_rnn_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Writes the character of each row of numbers, (N, 1), to ``file``, by default standard output.
    ``char_rnn_conf`` names the vocabulary.

    path: URL or path of the text: UTF-8, gzipped or not.

    vocab_path: File that holds each character once, in the order of their numbers. When empty, the characters of
    the text in the order of their code points.

    batchsize: Number of segments of the text read in parallel, for the whole worker group."""

def ClassToken(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y ((T + 1) N, D) = a learned row, shared by all sequences, before the rows x (T N, D) of T time steps.  The
    layer and its readers have ``unroll_len: T + 1``. Params: token (D,), at first normal with standard deviation
    0.02. A TimePooling with ``pool: FIRST`` returns its final value. With a PaddingMask, begin records with a
    number for the token, which an Embedding learns, instead of using a ClassToken."""

def Concate(
    *,
    concate_dim: int = ...,
    num_concates: int = ...,
    concate_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Joins its sources along axis ``concate_dim``; 0 is the batch, and joins labels too.  In an unrolled net the
    batches of each time step are joined.

    concate_dim: Axis along which the sources are joined; 0 is the batch.

    num_concates: Number of outputs."""

def ContrastiveLoss(
    *,
    margin: float = ...,
    contrastiveloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = sum s d^2 + (1 - s) max(0, margin - d)^2 / (2 N), d = ||x1 - x2||: of Hadsell et al. (2006), as in
    Caffe.  Sources: x1 and x2, (N, ...) taken as (N, D), and s (N, 1), e.g. a TargetInput: 1 if both are alike, 0
    if not.

    margin: Distance beyond which different records have no loss."""

def ConvTranspose(
    num_filters: int,
    *,
    kernel: int | None = ...,
    pad: int | None = ...,
    stride: int | None = ...,
    kernel_x: int = ...,
    kernel_y: int = ...,
    pad_x: int = ...,
    pad_y: int = ...,
    stride_x: int = ...,
    stride_y: int = ...,
    dilation: int | None = ...,
    dilation_x: int = ...,
    dilation_y: int = ...,
    groups: int = ...,
    bias_term: bool = ...,
    output_pad: int = ...,
    convtranspose_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y[n, f, i s + k d - pad, j s + l d - pad] += W[c, f, k, l] x[n, c, i, j], from y = b.  Here s is ``stride``, d
    ``dilation``. x (N, C, H, W); y (N, F, OH, OW) with OH = (H - 1) s + d (kernel - 1) + 1 - 2 pad + output_pad,
    and the width likewise; W (C, F kernel_y kernel_x) with columns in the order f, k, l; b (F,). It computes the
    gradient of a `Convolution` of y with respect to its input. With ``groups`` G, channels and filters are
    divided into G groups, and W has F / G filters.

    kernel: Height and width of the window.

    pad: Rows and columns of padding on each side.

    stride: Step of the window on both axes.

    kernel_x: Width of the window.

    kernel_y: Height of the window.

    pad_x: Columns of padding on the left and on the right.

    pad_y: Rows of padding above and below.

    stride_x: Step of the window to the right.

    stride_y: Step of the window down.

    num_filters: Channels of the output.

    dilation: Distance of neighbouring pixels of the window, on both axes.

    dilation_x: Distance of neighbouring pixels of the window to the right.

    dilation_y: Distance of neighbouring pixels of the window down.

    groups: Groups of channels and filters; filters see the channels of their group. A group for each channel
    makes the convolution depthwise.

    bias_term: Whether each filter has a bias.

    output_pad: Additional rows below and columns to the right of the output; less than the stride or the
    dilation."""
Deconvolution = ConvTranspose

def Convolution(
    num_filters: int,
    *,
    kernel: int | None = ...,
    pad: int | None = ...,
    stride: int | None = ...,
    kernel_x: int = ...,
    kernel_y: int = ...,
    pad_x: int = ...,
    pad_y: int = ...,
    stride_x: int = ...,
    stride_y: int = ...,
    dilation: int | None = ...,
    dilation_x: int = ...,
    dilation_y: int = ...,
    groups: int = ...,
    bias_term: bool = ...,
    workspace_byte_limit: int = ...,
    convolution_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y[n, f, i, j] = b[f] + sum_{c, k, l} W[f, c, k, l] x[n, c, i s + k d - pad, j s + l d - pad].  Here s is
    ``stride``, d ``dilation``. x (N, C, H, W) is 0 outside; y (N, F, OH, OW); W (F, C kernel_y kernel_x) with
    columns in the order c, k, l; b (F,). The kernel is not flipped. ``bias_term: false`` leaves b out. With
    ``groups`` G, filters and channels are divided into G groups, filters see the channels of their group, and W
    has C / G channels; with G = C the convolution is depthwise.

    kernel: Height and width of the window.

    pad: Rows and columns of padding on each side.

    stride: Step of the window on both axes.

    kernel_x: Width of the window.

    kernel_y: Height of the window.

    pad_x: Columns of padding on the left and on the right.

    pad_y: Rows of padding above and below.

    stride_x: Step of the window to the right.

    stride_y: Step of the window down.

    num_filters: Channels of the output.

    dilation: Distance of neighbouring pixels of the window, on both axes.

    dilation_x: Distance of neighbouring pixels of the window to the right.

    dilation_y: Distance of neighbouring pixels of the window down.

    groups: Groups of channels and filters; filters see the channels of their group. A group for each channel
    makes the convolution depthwise.

    bias_term: Whether each filter has a bias.

    workspace_byte_limit: Most memory for cuDNN, in MB."""
CConvolution = Convolution
CudnnConv = Convolution

def Dropout(
    *,
    dropout_ratio: float = ...,
    dropout_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""In training y = x mask, mask = [u < 1 - p] / (1 - p), u uniform in [0, 1); otherwise y = x.  The mask is a
    function of seed, layer, step, time step and the row in the group's batch.

    dropout_ratio: Probability that a value is dropped in training."""

def Dummy(
    *,
    input: bool = ...,
    output: bool = ...,
    shape: int | Sequence[int] = ...,
    dummy_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Stands in for any layer in tests: ``input`` draws data, ``output`` gradients from U[0, 1); else both are
    copied.  ``dummy_conf.shape`` is the shape of the whole group's batch.

    input: Make random data of the shape.

    output: Make random gradients.

    shape: Shape of the data, batch first."""

def Embedding(
    *,
    vocab_size: int = ...,
    feature_dim: int = ...,
    embedding_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Rows of a table (vocab_size, feature_dim), selected by the source: (rows, feature_dim).  -1 is padding, a row
    of zeros, as in SINGA's documents. The gradient of a row of the table is the sum over all rows of the output
    that were taken from it. (SINGA loses some of them.)

    vocab_size: Rows of the table.

    feature_dim: Values of a row."""

def EuclideanLoss(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = sum (x - t)^2 / N; as in SINGA the gradient is (x - t) / N, that of half the loss.  Its output is x -
    t, (N, D). A target that requires a gradient gets the opposite one.  A third source, a WeightInput, has a
    weight for each record: loss = sum w (x - t)^2 / N, gradient w (x - t) / N."""

def GELU(
    *,
    approximate: Literal["none", "tanh"] = ...,
    gelu_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x (1 + erf(x / sqrt(2))) / 2, or with ``approximate: tanh`` its approximation, elementwise.  The
    approximation is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. After Hendrycks and Gimpel (2016).

    approximate: Compute the error function exactly, or by a tanh."""

def GRU(
    dim_hidden: int,
    *,
    bias_term: bool = ...,
    reverse: bool = ...,
    carry_state: bool = ...,
    gru_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Gated recurrent units: h' = z h + (1 - z) c.  z = sigmoid(x W_z^T + h U_z^T + b_z), r = sigmoid(x W_r^T + h
    U_r^T + b_r), c = tanh(x W_c^T + r (h U_c^T) + b_c).

    dim_hidden: Units of the hidden state.

    bias_term: Whether there are biases. As in SINGA, there are none if the layer lists its weights and nothing
    else.

    reverse: Read the time steps from the last to the first. For a bidirectional layer, join two layers, one of
    them reversed, by a Concate along axis 1.

    carry_state: Start each batch with the last state of the previous batch, if it continues the same stream."""

def GlobalPooling(
    *,
    pool: Literal["MAX", "AVG"] = ...,
    globalpooling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, C) = the mean of each channel of x (N, C, H, W) over its pixels, or its largest value: ``pool`` AVG or
    MAX.  Of equal largest values the first, by rows, gets the gradient. After Lin et al. (2014).

    pool: Take the mean of all pixels, or the largest value."""

def GroupNorm(
    *,
    num_groups: int = ...,
    epsilon: float = ...,
    groupnorm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each group of channels of an
    image.  x and y (N, C, H, W). Params, each (C,): scale (at first 1), shift (0).

    num_groups: Groups of neighbouring channels; divides the number of channels.

    epsilon: Added to the variance."""

def HuberLoss(
    *,
    delta: float = ...,
    huberloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = mean of h(x - t), h(d) = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2): PyTorch's HuberLoss.
    The mean is over records and values. With ``delta`` 1 it is the smooth L1 loss. Sources, output and weights
    are as in EuclideanLoss.

    delta: Difference from which the loss is linear."""

def ImagePreprocess(
    *,
    scale: float = ...,
    cropsize: int = ...,
    mirror: bool = ...,
    pad: int = ...,
    meanfile: str = ...,
    rgbimage_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = ``scale`` x of images (N, C, H, W), cropped to (N, C, cropsize, cropsize), or whole if ``cropsize`` is 0.
    In training each image is cropped at a random place, and ``mirror`` flips half of the images left to right;
    otherwise the centre is cropped. The random numbers depend on seed, layer, epoch and record only, so results
    are the same for any number of workers and after a resume. Labels are passed on.  ``pad`` adds zeros to each
    side of an image before it is cropped: with the image's size as ``cropsize``, images are shifted by up to
    ``pad`` pixels in training.

    scale: Multiplies each pixel.

    cropsize: Height and width of the crop, at a random place in training, else at the centre; 0 keeps the whole
    image.

    mirror: Mirror half of the training images.

    pad: Rows and columns of zeros added to each side of an image before it is cropped; they are not normalised.

    meanfile: Store whose first record is subtracted; read by the deprecated RGBImage layer only."""

def InnerProduct(
    num_output: int,
    *,
    bias_term: bool = ...,
    transpose: bool = ...,
    innerproduct_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x W^T + b: x (N, ...) as rows (N, D), images in the order C, H, W; W (H, D), b (H,), y (N, H).  With
    ``transpose`` y = x W + b and W (D, H). ``bias_term: false``, which SINGA ignores, leaves b out.

    num_output: Number of output features.

    bias_term: Whether a bias is added.

    transpose: Keep the weights as (inputs, outputs) instead of (outputs, inputs)."""

def LRN(
    *,
    local_size: int = ...,
    alpha: float = ...,
    beta: float = ...,
    knorm: float = ...,
    lrn_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x / S^beta, with S[c] = knorm + alpha / local_size times the sum of x^2 over local_size channels around c.
    x and y (N, C, H, W). At the first and last channels fewer are summed; the divisor of alpha stays the same.
    The gradient is gy / S^beta - 2 beta alpha / local_size x T, with T[c] the sum of gy x / S^(beta + 1) over the
    same channels.

    local_size: Channels of the window, an odd number.

    alpha: Weight of the squares; divided by local_size.

    beta: Exponent.

    knorm: Added to the sum."""
CudnnLRN = LRN

def LSTM(
    dim_hidden: int,
    *,
    bias_term: bool = ...,
    reverse: bool = ...,
    carry_state: bool = ...,
    lstm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Long short-term memory: c' = f c + i g, h' = o tanh(c').  i = sigmoid(x W_i^T + h U_i^T + b_i), likewise f and
    o; g = tanh(x W_g^T + h U_g^T + b_g). The cell c starts like the state h, but at zeros if h comes from another
    layer.

    dim_hidden: Units of the hidden state.

    bias_term: Whether there are biases. As in SINGA, there are none if the layer lists its weights and nothing
    else.

    reverse: Read the time steps from the last to the first. For a bidirectional layer, join two layers, one of
    them reversed, by a Concate along axis 1.

    carry_state: Start each batch with the last state of the previous batch, if it continues the same stream."""

def LabelInput(
    column: str,
    *,
    label_conf: Mapping[str, Any] = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""One of several labels of records, as the second source of a SoftmaxLoss: (batchsize / n_workers, 1).  The
    ``store_conf`` of the layer that reads the features lists the columns, ``label: [species, island]``. Give this
    layer the same ``store_conf``, so that both have the same records in each step. Each label has its own
    classes. The values are the labels as floats.

    column: Name of the column: one of ``label`` in ``store_conf``."""

def LayerNorm(
    *,
    epsilon: float = ...,
    layernorm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each row of x (N, D).  Params,
    each (D,): scale (at first 1), shift (0).

    epsilon: Added to the variance."""

def LeakyReLU(
    *,
    negative_slope: float = ...,
    leakyrelu_conf: Mapping[str, Any] = ...,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x where positive, else ``negative_slope`` x, elementwise. After Maas et al. (2013).

    negative_slope: Slope below zero."""

def MultiHeadAttention(
    num_heads: int,
    *,
    causal: bool = ...,
    bias_term: bool = ...,
    rotary_base: float | None = ...,
    carry_state: bool = ...,
    multiheadattention_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = concat_h(softmax(Q_h K_h^T / sqrt(d)) V_h) W_o^T + b_o, with [Q K V] = x W_i^T + b_i and d = D /
    num_heads.  x and y (T N, D) are rows of T time steps, the first step first; a sequence attends to itself.
    Params: qkv_weight W_i (3 D, D), the rows of queries, keys, values; output_weight W_o (D, D); qkv_bias (3 D,);
    output_bias (D,). With ``causal`` a query reads the keys of its own and earlier time steps.  For cross-
    attention, a second source (S N, D) gives keys and values of S time steps. A PaddingMask as last source gives
    keys of padding the weight 0. A query without keys gets b_o.

    num_heads: Number of heads, which divides the number of features.

    causal: Whether a time step attends to itself and earlier ones only.

    bias_term: Whether biases are added to queries, keys, values and output.

    rotary_base: Rotate queries and keys by their time steps t (RoPE): features i and i + d / 2 of the d features
    of a head by the angle t rotary_base^(-2 i / d); usually 10000. By default nothing is rotated.

    carry_state: Attend to time steps of earlier batches of the same stream, too. Needs causal; not for training."""

def Multiply(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x1 x2 ..., elementwise, of two or more sources of one shape.  The gradient of a source is the gradient of
    y times the other sources."""

def OneHot(
    *,
    vocab_size: int = ...,
    onehot_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""One-hot rows: zeros with a one in the column that the source gives, (rows, vocab_size).  If no layer reads the
    rows, only the columns are computed.

    vocab_size: Length of a one-hot row."""

def PaddingMask(
    *,
    padding: int = ...,
    lengths: bool = ...,
    paddingmask_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Marks time steps that are not padding: (rows, 1) bool, true if the number of the source is not ``padding``.
    With ``lengths`` the source has the length of each sequence, (N, 1), and earlier time steps are true. Layers
    that read the mask as an additional source ignore padding: MultiHeadAttention, TimePooling, GRU, LSTM and RNN.

    padding: The number of padding.

    lengths: Whether the source has the length of each sequence, one a row, instead of the numbers of its time
    steps."""

def PixelSoftmaxLoss(
    *,
    topk: int = ...,
    scale: float = ...,
    label_smoothing: float = ...,
    ignore_index: int | None = ...,
    class_weights: float | Sequence[float] = ...,
    focal_gamma: float = ...,
    pixelsoftmaxloss_conf: Mapping[str, Any] = ...,
    softmaxloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""SoftmaxLoss of each pixel of scores (N, C, H, W), as for segmentation.  It is the mean over all pixels that
    count. The second source has the labels of the pixels as values, H W for each record in the order of rows,
    e.g. a TargetInput with ``target_conf: {size: H W}``, which reads the field ``target`` of the records.  Its
    output is p (N, H W, C). ``ignore_index`` and all other keys are those of SoftmaxLoss, for pixels.

    topk: A record counts as right when its label is among the best this many.

    scale: Multiplies loss, accuracy and gradient.

    label_smoothing: Part of the target that is spread evenly over all classes, in tests too.

    ignore_index: Rows with this label count neither in the loss and its mean, nor in the accuracy and the
    gradient.

    class_weights: A weight for each class: the loss is the weighted sum of the losses, divided by the sum of the
    weights.

    focal_gamma: Focal loss: multiplies the loss of a row by (1 - p)^focal_gamma, where p is the probability of
    its label."""

def Pooling(
    *,
    kernel: int | None = ...,
    pad: int | None = ...,
    stride: int | None = ...,
    kernel_x: int = ...,
    kernel_y: int = ...,
    pad_x: int = ...,
    pad_y: int = ...,
    stride_x: int = ...,
    stride_y: int = ...,
    pool: Literal["MAX", "AVG"] = ...,
    ties: Literal["first", "all"] = ...,
    count_include_pad: bool | None = ...,
    pooling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, C, OH, OW) = the largest value of each window of x (N, C, H, W), or their mean: ``pool`` MAX or AVG.
    Padding is never the largest. Of equal values the first, by rows, gets the gradient, or all do (``ties``). A
    mean is the sum of the window's pixels over kernel_y kernel_x, or over the number of its pixels inside the
    image if ``count_include_pad`` is false, the default of CudnnPool.

    kernel: Height and width of the window.

    pad: Rows and columns of padding on each side.

    stride: Step of the window on both axes.

    kernel_x: Width of the window.

    kernel_y: Height of the window.

    pad_x: Columns of padding on the left and on the right.

    pad_y: Rows of padding above and below.

    stride_x: Step of the window to the right.

    stride_y: Step of the window down.

    pool: Take the largest value of a window, or the mean.

    ties: Which of equal largest values of a window get the gradient: the first, or all, as in SINGA's kPooling.

    count_include_pad: Whether padding counts in a mean; by default yes, except for CudnnPool."""
CPooling = Pooling
CudnnPool = Pooling

def PositionalEmbedding(
    max_length: int,
    *,
    carry_state: bool = ...,
    positionalembedding_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x + table[t], where x (T N, D) are rows of T time steps, and t is the time step of a row.  The table is a
    param (max_length, D), at first normal with standard deviation 0.02.

    max_length: Number of positions: the most time steps of a sequence.

    carry_state: Continue the positions of the previous batch of the same stream. Not for training."""

def RBMHid(
    hdim: int,
    *,
    bias_term: bool = ...,
    gaussian: bool = ...,
    rbm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""The hidden units: probabilities sigmoid(v W^T + c) of the visible ones v (N, D), or means v W^T + c.  The
    source is the RBMVis. Params: W (H, D), shared from the RBMVis or shared by it, and c (H,). The RBMVis
    computes the gradient of W. This layer adds 0 to it but counts as a sharer, so that W learns from half of the
    gradient, as in SINGA, unless one of the two has ``share_gradient: sum``.

    hdim: Number of hidden units; set it in both layers.

    bias_term: Whether there is a bias.

    gaussian: Whether the units of this layer are Gaussian, linear with unit variance, instead of Bernoulli."""

def RBMVis(
    hdim: int,
    *,
    bias_term: bool = ...,
    gaussian: bool = ...,
    rbm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""The visible units v: records x (N, ...) taken as (N, D), images in the order C, H, W; and their
    reconstruction.  ``srclayers`` are the layer of the records and the RBMHid. Params: W (H, D), H being
    ``rbm_conf.hdim``, and b (D,). A reconstruction is sigmoid(h W + b), of Gaussian units h W + b, where h is a
    sample of the hidden units: 1 with their probability, or Gaussian with their mean and variance 1. The
    reconstruction is not sampled. The gradient of W is (h-^T v- - h+^T v+) / N, of the model (-) and of the
    records (+).  The metric "squared_error" is the mean over records of sum (x - v)^2, v being the first
    reconstruction of x.

    hdim: Number of hidden units; set it in both layers.

    bias_term: Whether there is a bias.

    gaussian: Whether the units of this layer are Gaussian, linear with unit variance, instead of Bernoulli."""

def RMSNorm(
    *,
    epsilon: float = ...,
    rmsnorm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale x / sqrt(m + epsilon), with the mean m of the squares of each row of x (N, D).  Params: scale (D,),
    at first 1.

    epsilon: Added to the mean of the squares."""

def RNN(
    dim_hidden: int,
    *,
    bias_term: bool = ...,
    reverse: bool = ...,
    carry_state: bool = ...,
    activation: Literal["TANH", "RELU", "SIGMOID"] = ...,
    rnn_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""h' = f(x W^T + h U^T + b); f is ``rnn_conf.activation``: TANH, RELU or SIGMOID.

    dim_hidden: Units of the hidden state.

    bias_term: Whether there are biases. As in SINGA, there are none if the layer lists its weights and nothing
    else.

    reverse: Read the time steps from the last to the first. For a bidirectional layer, join two layers, one of
    them reversed, by a Concate along axis 1.

    carry_state: Start each batch with the last state of the previous batch, if it continues the same stream.

    activation: The function of the sum."""

def RNNDummy(
    *,
    dynamic_srclayer: str = ...,
    shape: int | Sequence[int] = ...,
    integer: bool = ...,
    low: float = ...,
    high: float = ...,
    rnn_dummy_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Random data, uniform in [``low``, ``high``), rounded down if ``integer``.  In a test, from the second batch
    on, the output of the layer ``dynamic_srclayer`` in the previous batch.

    dynamic_srclayer: Layer whose output of the previous batch is this layer's data in a test.

    shape: Shape of the data, batch first.

    integer: Round the random initial values down.

    low: Lower bound of the random initial values.

    high: Upper bound of the random initial values, excluded."""

def RNNLabel(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Labels of time steps: the number of the source at the next step."""

def ReLU(
    *,
    negative_slope: float = ...,
    relu_conf: Mapping[str, Any] = ...,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x where positive, else ``relu_conf.negative_slope`` x (SINGA ignores the slope).

    negative_slope: Slope below zero."""

def RecordInput(
    *,
    backend: str = ...,
    path: str = ...,
    split: Mapping[str, Any] | None = ...,
    mean_file: str = ...,
    std_file: str = ...,
    mean_value: float | None = ...,
    std_value: float | None = ...,
    standardise: bool = ...,
    batchsize: int | Sequence[int] = ...,
    shape: int | Sequence[int] = ...,
    encoded: bool = ...,
    random_skip: int = ...,
    prefetching: bool = ...,
    shuffle: Literal["none", "block", "full"] = ...,
    window: int = ...,
    last_batch: Literal["wrap", "drop_last", "pad"] = ...,
    on_error: Literal["raise", "skip", "replace"] = ...,
    max_bad: float = ...,
    labels: int = ...,
    layout: Literal["NCHW", "NHWC"] = ...,
    storage_options: Mapping[str, Any] = ...,
    augment: Mapping[str, Any] | None = ...,
    cache: Mapping[str, Any] | None = ...,
    io_threads: int = ...,
    in_flight_mb: int = ...,
    memory_mb: int | None = ...,
    max_decompressed_mb: float = ...,
    resize: int | Sequence[int] | None = ...,
    channels: Literal[1, 3] = ...,
    separator: str = ...,
    has_label: bool = ...,
    features: str | Sequence[str] = ...,
    label: str | Sequence[str] = ...,
    target: str | Sequence[str] = ...,
    weight: str = ...,
    missing: float | str = ...,
    unlabelled: Literal["error", "skip"] = ...,
    categories: Mapping[str, Any] = ...,
    encoding: Literal["one_hot", "index"] = ...,
    unknown: Literal["error", "ignore"] = ...,
    texts: Mapping[str, Any] = ...,
    numbers: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Reads records of any store: the field ``data`` if there is one, else ``pixel``.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training or only the test records, split by a rule: ``{part: train, test_share: 0.2}``.
    By default all.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store whose first record divides each record.

    mean_value: Number subtracted from each value, if there is no mean_file.

    std_value: Number that divides each value, if there is no std_file.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set it in the layers of the test and validation nets, too: they
    use the same numbers.

    batchsize: Records per step of the whole worker group, which its workers share as equally as possible; or a
    list with one number for each of them.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this many first ones.

    prefetching: Unused: batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Blocks in a window for shuffle: block; of Parquet with large row groups, row groups.

    last_batch: An incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it.

    on_error: For a record that cannot be read: raise an error, use the next good record, or use a random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. For hdfs:// they are client (native,
    pyarrow, webhdfs), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal,
    kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem or decoded ahead, and
    not used yet; one block is always allowed. Part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are in flight, read, shuffled, or kept for the next epoch. Default: 1280, or less if a third of the
    memory of the process, divided among its layers that read stores, is less; a layer that shuffles gets twice
    the share of a test layer.

    max_decompressed_mb: Maximum decompressed size of a gzipped file, or of a block of another format, in 10**6
    bytes.

    resize: Height and width to which image files are scaled and cropped, for image-folder, image-list, image-
    parquet, parquet, tfrecord, webdataset and Caffe's encoded images in lmdb. A JPEG of at least four times the
    size is decoded at a half, a quarter or an eighth of its size, and then scaled; values differ by about 0.4 of
    255 on average.

    channels: Channels of image files, for the same stores: grey (1) or colour (3).

    separator: Characters that each separate values of a CSV line; one character for a table with named columns.
    Excel's first line ``sep=;`` takes precedence.

    has_label: Whether a CSV line starts with its label; for a table with named columns, whether label, target and
    weight are read.

    features: Columns of a table that a record consists of: names or patterns, e.g. ``pixel*``. By default all
    columns of numbers except label, target and weight. A column of vectors, lists of numbers of one length, gives
    as many values; by default vectors are features of a table without columns of numbers.

    label: Column of a table with the label: integers, or strings, which become the names of the classes. Several
    columns are several labels of a record, each with its own classes, for LabelInput layers. If features, label
    and target are not given, the only column called label, labels, y, class, target or targets.

    target: Columns of a table with numbers to predict, the values of a TargetInput layer.

    weight: Column of a table with the weight of each record in training, the values of a WeightInput layer:
    numbers from 0 on.

    missing: Treatment of missing values, which are nulls, NaN, and in CSV empty fields and pandas' names for
    them: error, skip (leave the record out), mean (replace those of features by their mean in the training data),
    or a number that replaces those of features.

    unlabelled: Records of a table without a label or target: error, or skip (leave the record out).

    categories: Columns of a table whose values are names, and these names in order; if the list is empty, the
    sorted names in the training data. The name ``''`` stands for missing values. A listed name is not a missing
    value, e.g. a country NA in CSV.

    encoding: Whether a feature among categories becomes a value 0 or 1 for each name, or the index of its name.

    unknown: Treatment of unknown categories of a feature: error, or ignore (read them as zeros, which needs
    ``one_hot``).

    texts: Columns of a table whose values are texts, and their encoding: ``{text: {length: 64}}``. The vocabulary
    is learned from the training data, and kept in checkpoints.

    numbers: Columns of a table whose numbers are texts, and their form: ``{price: {thousands: ",", unit: "$"}}``.
    Checkpoints keep it, and ``predict`` and ``serve`` read such texts, or numbers.

    na_values: Words that mean a missing value, such as unknown, in all columns of a table except texts. A word
    that ``categories`` lists is a name there.

    lags: Earlier values of columns of a time series, taken from preceding records: ``{columns: load, n: 3}`` adds
    load_lag1 to load_lag3 to a table that lacks them.

    header: Whether a CSV file begins with a line of column names; detected if not given. If false, the columns of
    a table are called 1, 2, ... by position.

    quotes: Whether fields of a CSV table may be in double quotes. If false, a quote is a character of its field.
    If not given, quoted texts of several lines are refused where each of their lines could be a record.

    charset: Encoding of a CSV table, by Python's name, such as latin-1; it must extend ASCII."""

def RecordOutput(
    *,
    backend: str = ...,
    path: str = ...,
    split: Mapping[str, Any] | None = ...,
    mean_file: str = ...,
    std_file: str = ...,
    mean_value: float | None = ...,
    std_value: float | None = ...,
    standardise: bool = ...,
    batchsize: int | Sequence[int] = ...,
    shape: int | Sequence[int] = ...,
    encoded: bool = ...,
    random_skip: int = ...,
    prefetching: bool = ...,
    shuffle: Literal["none", "block", "full"] = ...,
    window: int = ...,
    last_batch: Literal["wrap", "drop_last", "pad"] = ...,
    on_error: Literal["raise", "skip", "replace"] = ...,
    max_bad: float = ...,
    labels: int = ...,
    layout: Literal["NCHW", "NHWC"] = ...,
    storage_options: Mapping[str, Any] = ...,
    augment: Mapping[str, Any] | None = ...,
    cache: Mapping[str, Any] | None = ...,
    io_threads: int = ...,
    in_flight_mb: int = ...,
    memory_mb: int | None = ...,
    max_decompressed_mb: float = ...,
    resize: int | Sequence[int] | None = ...,
    channels: Literal[1, 3] = ...,
    separator: str = ...,
    has_label: bool = ...,
    features: str | Sequence[str] = ...,
    label: str | Sequence[str] = ...,
    target: str | Sequence[str] = ...,
    weight: str = ...,
    missing: float | str = ...,
    unlabelled: Literal["error", "skip"] = ...,
    categories: Mapping[str, Any] = ...,
    encoding: Literal["one_hot", "index"] = ...,
    unknown: Literal["error", "ignore"] = ...,
    texts: Mapping[str, Any] = ...,
    numbers: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Write records of ``data``, and ``label`` if the last source has labels, to any store.  ``store_conf.backend``
    names the format, kvfile by default. The file is written when the net is closed.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training or only the test records, split by a rule: ``{part: train, test_share: 0.2}``.
    By default all.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store whose first record divides each record.

    mean_value: Number subtracted from each value, if there is no mean_file.

    std_value: Number that divides each value, if there is no std_file.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set it in the layers of the test and validation nets, too: they
    use the same numbers.

    batchsize: Records per step of the whole worker group, which its workers share as equally as possible; or a
    list with one number for each of them.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this many first ones.

    prefetching: Unused: batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Blocks in a window for shuffle: block; of Parquet with large row groups, row groups.

    last_batch: An incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it.

    on_error: For a record that cannot be read: raise an error, use the next good record, or use a random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. For hdfs:// they are client (native,
    pyarrow, webhdfs), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal,
    kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem or decoded ahead, and
    not used yet; one block is always allowed. Part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are in flight, read, shuffled, or kept for the next epoch. Default: 1280, or less if a third of the
    memory of the process, divided among its layers that read stores, is less; a layer that shuffles gets twice
    the share of a test layer.

    max_decompressed_mb: Maximum decompressed size of a gzipped file, or of a block of another format, in 10**6
    bytes.

    resize: Height and width to which image files are scaled and cropped, for image-folder, image-list, image-
    parquet, parquet, tfrecord, webdataset and Caffe's encoded images in lmdb. A JPEG of at least four times the
    size is decoded at a half, a quarter or an eighth of its size, and then scaled; values differ by about 0.4 of
    255 on average.

    channels: Channels of image files, for the same stores: grey (1) or colour (3).

    separator: Characters that each separate values of a CSV line; one character for a table with named columns.
    Excel's first line ``sep=;`` takes precedence.

    has_label: Whether a CSV line starts with its label; for a table with named columns, whether label, target and
    weight are read.

    features: Columns of a table that a record consists of: names or patterns, e.g. ``pixel*``. By default all
    columns of numbers except label, target and weight. A column of vectors, lists of numbers of one length, gives
    as many values; by default vectors are features of a table without columns of numbers.

    label: Column of a table with the label: integers, or strings, which become the names of the classes. Several
    columns are several labels of a record, each with its own classes, for LabelInput layers. If features, label
    and target are not given, the only column called label, labels, y, class, target or targets.

    target: Columns of a table with numbers to predict, the values of a TargetInput layer.

    weight: Column of a table with the weight of each record in training, the values of a WeightInput layer:
    numbers from 0 on.

    missing: Treatment of missing values, which are nulls, NaN, and in CSV empty fields and pandas' names for
    them: error, skip (leave the record out), mean (replace those of features by their mean in the training data),
    or a number that replaces those of features.

    unlabelled: Records of a table without a label or target: error, or skip (leave the record out).

    categories: Columns of a table whose values are names, and these names in order; if the list is empty, the
    sorted names in the training data. The name ``''`` stands for missing values. A listed name is not a missing
    value, e.g. a country NA in CSV.

    encoding: Whether a feature among categories becomes a value 0 or 1 for each name, or the index of its name.

    unknown: Treatment of unknown categories of a feature: error, or ignore (read them as zeros, which needs
    ``one_hot``).

    texts: Columns of a table whose values are texts, and their encoding: ``{text: {length: 64}}``. The vocabulary
    is learned from the training data, and kept in checkpoints.

    numbers: Columns of a table whose numbers are texts, and their form: ``{price: {thousands: ",", unit: "$"}}``.
    Checkpoints keep it, and ``predict`` and ``serve`` read such texts, or numbers.

    na_values: Words that mean a missing value, such as unknown, in all columns of a table except texts. A word
    that ``categories`` lists is a name there.

    lags: Earlier values of columns of a time series, taken from preceding records: ``{columns: load, n: 3}`` adds
    load_lag1 to load_lag3 to a table that lacks them.

    header: Whether a CSV file begins with a line of column names; detected if not given. If false, the columns of
    a table are called 1, 2, ... by position.

    quotes: Whether fields of a CSV table may be in double quotes. If false, a quote is a character of its field.
    If not given, quoted texts of several lines are refused where each of their lines could be a record.

    charset: Encoding of a CSV table, by Python's name, such as latin-1; it must extend ASCII."""

def Reshape(
    shape: int | Sequence[int],
    *,
    reshape_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, ``shape``) = the values of x (N, ...) in their order, C, H, W for images.

    shape: Lengths of the axes of a record; one of them may be -1, which is inferred."""

def STanh(
    *,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = 1.7159047 tanh(0.66666667 x)."""

def Sampling(
    *,
    temperature: float = ...,
    probabilities: bool = ...,
    sampling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""A column drawn for each row, (N, 1), with probabilities ``softmax(x / temperature)``.  With ``probabilities``,
    x is the logarithm of the source. At temperature 0 it is the column of the highest value, as in `ArgSort`.

    temperature: Divides the logits: likely columns become likelier below 1; at 0 the most likely one is taken.

    probabilities: Whether the source outputs probabilities, as Softmax does, and not logits."""

def SiLU(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x sigmoid(x), elementwise; Hendrycks and Gimpel (2016), also known as swish."""

def Sigmoid(
    *,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = 1 / (1 + exp(-x))."""

def SigmoidCrossEntropyLoss(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Sigmoids and binary cross entropy: loss = mean of -t log p - (1 - t) log(1 - p), p = sigmoid(x), of (N, D).
    For multi-label classification: source one has a score for each label, source two a target for each, in [0,
    1], where 1 means that the record has the label, e.g. from a TargetInput. The loss is computed from the
    scores, in a form that does not overflow. The mean is over records and labels.  Its output is p (N, D). The
    metric "binary_accuracy" is the share of all labels with (p > 0.5) == (t > 0.5). The gradient is (p - t) / (N
    D). A target that requires a gradient gets -x / (N D).  A third source, a WeightInput, has a weight for each
    record, which multiplies its loss and gradient. The metric "binary_accuracy" is that of all records alike."""

def Slice(
    *,
    slice_dim: int = ...,
    num_slices: int = ...,
    slice_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Slices its source in ``num_slices`` nearly equal pieces along axis ``slice_dim``, one for each consumer.  Axis
    0 is the batch, in an unrolled net the batch of each time step. Pieces of the batch are views, not copies.

    slice_dim: Axis along which the source is sliced; 0 is the batch.

    num_slices: Number of pieces."""

def Softmax(
    *,
    num_softmax_per_instance: int = ...,
    softmax_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = exp(x) / sum exp(x), of each record x (N, ...) taken as a row: y (N, D).  With
    ``num_softmax_per_instance`` n each of n equal parts of a row has its own softmax. For images (N, C, H, W) n
    is 1, or H W for a softmax over the channels of each pixel; then y is (N, C, H, W). The gradient is y (gy -
    sum(gy y)).

    num_softmax_per_instance: Softmaxes over equal parts of a row. For images 1, or the number of pixels for one
    over the channels of each."""
CudnnSoftmax = Softmax

def SoftmaxLoss(
    *,
    topk: int = ...,
    scale: float = ...,
    label_smoothing: float = ...,
    ignore_index: int | None = ...,
    class_weights: float | Sequence[float] = ...,
    focal_gamma: float = ...,
    softmaxloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Softmax and cross entropy: loss = scale / N sum -log p[label], of x (N, ...) taken as (N, D).  Also called
    CudnnSoftmaxLoss, which in SINGA reports only the loss, as a sum.  Its output is p (N, D). The metric
    "accuracy" is scale / N times the rows with their label among the ``topk`` highest; of equal ones the higher
    class comes first. The gradient is scale / N (p - onehot).  With ``label_smoothing`` e, after Szegedy et al.
    (2016), the target is (1 - e) onehot + e / D in place of onehot.  A third source, a WeightInput, has a weight
    for each record: loss = scale / N sum -w log p[label], and the gradient of a record is multiplied by its
    weight. The accuracy is that of all records alike.  With ``class_weights`` c, and c = 0 where the label is
    ``ignore_index``, the loss is scale / Z sum -c[label] log p[label] with Z = sum c[label], as that of PyTorch's
    cross_entropy. Z is the sum over the batch of a worker group, whose workers send each other their sums in each
    step of training. The metrics are means over all rows that count; classes have no weights in the accuracy. A
    batch of ignored rows has gradients of 0. Label smoothing takes the weight of the label for all classes, where
    PyTorch takes that of each class. Z is that of all time steps of an unrolled net, or of each of them where
    they are computed one by one.  Of rows that are mixed of two records, by ``mixup`` or ``cutmix`` in
    ``store_conf``, the loss is s loss(label) + (1 - s) loss(label'), where s is the share of the first; the
    accuracy counts the label of the larger share.  With ``focal_gamma`` g the loss of a row is -(1 - p[label])^g
    log p[label], after Lin et al. (2017).

    topk: A record counts as right when its label is among the best this many.

    scale: Multiplies loss, accuracy and gradient.

    label_smoothing: Part of the target that is spread evenly over all classes, in tests too.

    ignore_index: Rows with this label count neither in the loss and its mean, nor in the accuracy and the
    gradient.

    class_weights: A weight for each class: the loss is the weighted sum of the losses, divided by the sum of the
    weights.

    focal_gamma: Focal loss: multiplies the loss of a row by (1 - p)^focal_gamma, where p is the probability of
    its label."""
CudnnSoftmaxLoss = SoftmaxLoss

def Split(
    *,
    num_splits: int = ...,
    split_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Gives each of ``num_splits`` consumers the same data, and its source the sum of their gradients.

    num_splits: Number of readers."""

def Stack(
    *,
    images: bool = ...,
    stack_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, T, D) = rows x (T N, D) of T time steps as one record of each sequence. The layer has ``unroll_len: 1``.

    images: Make images (N, D, 1, T) with D channels, for a Convolution or Pooling over time with kernel_y 1."""

def Tanh(
    *,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = tanh(x)."""

def TargetInput(
    *,
    size: int = ...,
    target_conf: Mapping[str, Any] = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Targets of records for regression, as the second source of a EuclideanLoss: (batchsize / n_workers, targets).
    They are the columns ``target`` of a table with named columns, or the field ``target`` of other records, such
    as arrays (X, y) from Python, with ``target_conf.size`` values.  Give it the ``store_conf`` of the layer that
    reads the features, so that both have the same records in each step; shape, mean and std in it describe the
    features.

    size: Number of targets of a record."""

def TimePooling(
    *,
    pool: Literal["AVG", "MAX", "FIRST", "LAST"] = ...,
    timepooling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, D) = the mean of the time steps of x (T N, D), their largest values, the first or the last one:
    ``pool``.  The layer has ``unroll_len: 1``. A PaddingMask as second source leaves padding out; a sequence of
    padding gives zeros. Of equal largest values the first gets the gradient.

    pool: Take the mean of the time steps, the largest value of each feature, the first or the last time step."""

def Transpose(
    axes: int | Sequence[int],
    *,
    transpose_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x with two axes, ``axes``, exchanged.

    axes: The two axes to exchange, from 1 on; 0 is the batch."""

def TripletLoss(
    *,
    margin: float = ...,
    tripletloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = mean of max(0, d(a, p) - d(a, n) + margin), d(x, y) = ||x - y + 1e-6||: PyTorch's TripletMarginLoss.
    Sources: anchors a, similar records p, and different records n, each (N, ...) taken as (N, D).

    margin: How much farther away the negative record should be than the positive one."""

def Unstack(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (T N, D) = rows of T time steps of records x (N, T, D), each a sequence, or of images (N, D, 1, T).  The
    layer has ``unroll_len: T``."""

def Upsample(
    *,
    factor: int = ...,
    mode: Literal["NEAREST", "BILINEAR"] = ...,
    upsample_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, C, factor H, factor W) = images x (N, C, H, W), ``factor`` times as high and wide: ``mode``.  NEAREST
    repeats each pixel. BILINEAR interpolates x at (i + 1/2) / factor - 1/2 for pixel i of y, linearly between the
    two nearest pixels, on both axes.

    factor: How many times as high and as wide images become.

    mode: Repeat each pixel, or interpolate linearly between the centres of pixels; values are constant beyond the
    outermost centres."""

def WeightInput(
    *,
    backend: str = ...,
    path: str = ...,
    split: Mapping[str, Any] | None = ...,
    mean_file: str = ...,
    std_file: str = ...,
    mean_value: float | None = ...,
    std_value: float | None = ...,
    standardise: bool = ...,
    batchsize: int | Sequence[int] = ...,
    shape: int | Sequence[int] = ...,
    encoded: bool = ...,
    random_skip: int = ...,
    prefetching: bool = ...,
    shuffle: Literal["none", "block", "full"] = ...,
    window: int = ...,
    last_batch: Literal["wrap", "drop_last", "pad"] = ...,
    on_error: Literal["raise", "skip", "replace"] = ...,
    max_bad: float = ...,
    labels: int = ...,
    layout: Literal["NCHW", "NHWC"] = ...,
    storage_options: Mapping[str, Any] = ...,
    augment: Mapping[str, Any] | None = ...,
    cache: Mapping[str, Any] | None = ...,
    io_threads: int = ...,
    in_flight_mb: int = ...,
    memory_mb: int | None = ...,
    max_decompressed_mb: float = ...,
    resize: int | Sequence[int] | None = ...,
    channels: Literal[1, 3] = ...,
    separator: str = ...,
    has_label: bool = ...,
    features: str | Sequence[str] = ...,
    label: str | Sequence[str] = ...,
    target: str | Sequence[str] = ...,
    weight: str = ...,
    missing: float | str = ...,
    unlabelled: Literal["error", "skip"] = ...,
    categories: Mapping[str, Any] = ...,
    encoding: Literal["one_hot", "index"] = ...,
    unknown: Literal["error", "ignore"] = ...,
    texts: Mapping[str, Any] = ...,
    numbers: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Weights of records, as the third source of a loss layer: (batchsize / n_workers, 1).  They are the column
    ``weight`` of a table with named columns, or the field ``weight`` of other records, such as arrays (X, y,
    weights) from Python. Weights are at least 0; a record of weight 0 does not affect loss and gradient.  Give it
    the ``store_conf`` of the layer that reads the features, so that both have the same records in each step.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training or only the test records, split by a rule: ``{part: train, test_share: 0.2}``.
    By default all.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store whose first record divides each record.

    mean_value: Number subtracted from each value, if there is no mean_file.

    std_value: Number that divides each value, if there is no std_file.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set it in the layers of the test and validation nets, too: they
    use the same numbers.

    batchsize: Records per step of the whole worker group, which its workers share as equally as possible; or a
    list with one number for each of them.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this many first ones.

    prefetching: Unused: batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Blocks in a window for shuffle: block; of Parquet with large row groups, row groups.

    last_batch: An incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it.

    on_error: For a record that cannot be read: raise an error, use the next good record, or use a random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. For hdfs:// they are client (native,
    pyarrow, webhdfs), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal,
    kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem or decoded ahead, and
    not used yet; one block is always allowed. Part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are in flight, read, shuffled, or kept for the next epoch. Default: 1280, or less if a third of the
    memory of the process, divided among its layers that read stores, is less; a layer that shuffles gets twice
    the share of a test layer.

    max_decompressed_mb: Maximum decompressed size of a gzipped file, or of a block of another format, in 10**6
    bytes.

    resize: Height and width to which image files are scaled and cropped, for image-folder, image-list, image-
    parquet, parquet, tfrecord, webdataset and Caffe's encoded images in lmdb. A JPEG of at least four times the
    size is decoded at a half, a quarter or an eighth of its size, and then scaled; values differ by about 0.4 of
    255 on average.

    channels: Channels of image files, for the same stores: grey (1) or colour (3).

    separator: Characters that each separate values of a CSV line; one character for a table with named columns.
    Excel's first line ``sep=;`` takes precedence.

    has_label: Whether a CSV line starts with its label; for a table with named columns, whether label, target and
    weight are read.

    features: Columns of a table that a record consists of: names or patterns, e.g. ``pixel*``. By default all
    columns of numbers except label, target and weight. A column of vectors, lists of numbers of one length, gives
    as many values; by default vectors are features of a table without columns of numbers.

    label: Column of a table with the label: integers, or strings, which become the names of the classes. Several
    columns are several labels of a record, each with its own classes, for LabelInput layers. If features, label
    and target are not given, the only column called label, labels, y, class, target or targets.

    target: Columns of a table with numbers to predict, the values of a TargetInput layer.

    weight: Column of a table with the weight of each record in training, the values of a WeightInput layer:
    numbers from 0 on.

    missing: Treatment of missing values, which are nulls, NaN, and in CSV empty fields and pandas' names for
    them: error, skip (leave the record out), mean (replace those of features by their mean in the training data),
    or a number that replaces those of features.

    unlabelled: Records of a table without a label or target: error, or skip (leave the record out).

    categories: Columns of a table whose values are names, and these names in order; if the list is empty, the
    sorted names in the training data. The name ``''`` stands for missing values. A listed name is not a missing
    value, e.g. a country NA in CSV.

    encoding: Whether a feature among categories becomes a value 0 or 1 for each name, or the index of its name.

    unknown: Treatment of unknown categories of a feature: error, or ignore (read them as zeros, which needs
    ``one_hot``).

    texts: Columns of a table whose values are texts, and their encoding: ``{text: {length: 64}}``. The vocabulary
    is learned from the training data, and kept in checkpoints.

    numbers: Columns of a table whose numbers are texts, and their form: ``{price: {thousands: ",", unit: "$"}}``.
    Checkpoints keep it, and ``predict`` and ``serve`` read such texts, or numbers.

    na_values: Words that mean a missing value, such as unknown, in all columns of a table except texts. A word
    that ``categories`` lists is a name there.

    lags: Earlier values of columns of a time series, taken from preceding records: ``{columns: load, n: 3}`` adds
    load_lag1 to load_lag3 to a table that lacks them.

    header: Whether a CSV file begins with a line of column names; detected if not given. If false, the columns of
    a table are called 1, 2, ... by position.

    quotes: Whether fields of a CSV table may be in double quotes. If false, a quote is a character of its field.
    If not given, quoted texts of several lines are refused where each of their lines could be a record.

    charset: Encoding of a CSV table, by Python's name, such as latin-1; it must extend ASCII."""
