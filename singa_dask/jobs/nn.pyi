# Written by: singa-dask schema --stub
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict, Unpack

class Common(TypedDict, total=False):
    name: str
    r"""Name, unique in each net."""
    srclayers: str | Sequence[str]
    r"""Layers that this layer reads, in the order that its type requires."""
    param: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    r"""Params, in the order that the type of the layer requires: weights before bias."""
    include: Literal["train", "val", "test"] | Sequence[Literal["train", "val", "test"]]
    r"""Phases whose nets have this layer; if empty, all phases."""
    exclude: Literal["train", "val", "test"] | Sequence[Literal["train", "val", "test"]]
    r"""Phases whose nets do not have this layer. Deprecated: use include."""
    share_src_blobs: bool
    r"""Let an activation overwrite its source's memory."""
    unroll_len: int | None
    r"""Number of time steps; by default unroll_len of the net."""
    unroll_conn_type: Literal["OneToOne", "OneToAll", "FirstToLast", "Customized"] | Sequence[Literal["OneToOne", "OneToAll", "FirstToLast", "Customized"]]
    r"""For each source, how its time steps are connected to the time steps of this layer. The default is OneToAll for
    a source with one time step, else OneToOne."""
    unroll_steps: Sequence[Sequence[Sequence[int]]]
    r"""For each Customized source and each time step of this layer, the time steps of the source to read."""
    shift: int | Sequence[int]
    r"""For OneToOne, the number of time steps by which each source is delayed."""
    partition_dim: int | None
    r"""How the layer is divided among the workers of a group: by records (0), by features (1), or not at all (-1). By
    default partition_dim of the net."""
    location: int | None
    r"""Index of the worker in the group that computes the whole layer."""
    user_conf: Mapping[str, Any]
    r"""Options of a user's layer."""

def Accuracy(
    *,
    topk: int = ...,
    argsort_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Add the fraction of rows whose label is among the ``topk`` highest scores to the metric "accuracy".  The first
    source has the scores, the second the labels. The output is the same as that of ArgSort.

    topk: Number of columns to output for each record, highest score first."""

def Activation(
    *,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = f(x), elementwise; f is ``activation_conf.type``: RELU, SIGMOID, TANH or STANH.  With ``share_src_blobs``,
    the layer writes its output to the memory of its source, if the source layer does not read this memory again.
    This does not change any result. (In SINGA, the incoming gradient is lost.) In training, a ReLU that follows a
    BatchNorm, a Convolution or an Add is computed by the kernel of that layer."""
CudnnActivation = Activation

def AdaptivePooling(
    height: int,
    width: int,
    *,
    pool: Literal["MAX", "AVG"] = ...,
    adaptivepooling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Pool images of any size to OH rows and OW columns: x (N, C, H, W) becomes y (N, C, OH, OW).  ``height`` sets
    OH, ``width`` sets OW. Each value of y is the mean or the largest value of a window of x: ``pool`` AVG or MAX.
    Window i has the rows from floor(i H / OH) to ceil((i + 1) H / OH) - 1, and likewise the columns. If OH does
    not divide H, some neighbouring windows have a row in common.

    height: Height of the output.

    width: Width of the output.

    pool: Whether to compute the mean of each window, or the largest value."""

def Add(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x1 + x2 + ..., for two or more sources of equal shape.  The gradient of each source is the gradient of y.
    This is the shortcut connection of He et al. (2016), "Deep residual learning for image recognition"."""

def ArgSort(
    *,
    topk: int = ...,
    argsort_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""The columns of the ``argsort_conf.topk`` highest scores of each row, best first: (N, topk) floats.  If scores
    are equal, the higher column comes first.

    topk: Number of columns to output for each record, highest score first."""

def BatchNorm(
    *,
    momentum: float = ...,
    epsilon: float = ...,
    bm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale (x - m) / sqrt(v + epsilon) + shift for each channel of x (N, C, H, W), or each column of x (N, C).
    In training m and v are the mean and the variance of the worker's batch, over all rows and pixels. In tests m
    and v are running averages. Each training step updates them: ``mean = momentum mean + (1 - momentum) m``, and
    the variance likewise. Images (N, H, W) have one channel.  The params are scale, shift, mean and variance.
    Each has the shape (C,), and the initial values are 1, 0, 0 and 1. The updater does not change mean and
    variance; they are averaged over the workers of a group.

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
    mean_value: float | Sequence[float] = ...,
    std_value: float | Sequence[float] = ...,
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
    dates: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Read text lines: a label (if ``has_label``), then numbers.  Label and numbers are separated by any character
    of ``separator``. A first line with the names of the columns is skipped.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training records or only the test records, e.g. ``{part: train, test_share: 0.2}``. By
    default all records are read.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store with a record, its first, by which each record is divided.

    mean_value: Number subtracted from each value, if there is no mean_file; or a list with a number for each
    channel of an image (channels, height, width), otherwise for each value of a record.

    std_value: Number by which each value is divided, if there is no std_file; or a list as in mean_value.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set this key in the layers of the test and validation nets,
    too; these layers use the mean and standard deviation of the training records.

    batchsize: Number of records per step of the whole worker group, divided among its workers as equally as
    possible; or a list with a number for each worker.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this number of first records.

    prefetching: Unused, because batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Number of blocks in a window for ``shuffle: block``. For Parquet with large row groups, the number of
    row groups.

    last_batch: What to do with an incomplete batch at the end of an epoch: fill it from the next epoch, drop it,
    or pad it.

    on_error: What to do with a record that cannot be read: raise an error, use the next good record instead, or a
    random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. Options for hdfs:// are client (native,
    pyarrow, webhdfs), and with the client native also deadline_s, http (of the NameNode), config_dir,
    kerberos_principal, kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default there is no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem, or decoded, and not
    used yet. One block is always allowed. This memory is part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are requested, read, shuffled, or kept for the next epoch. The default is 1280, but all layers of a
    process that read stores together use at most a third of the process's memory. In this division, a layer that
    shuffles gets twice the share of a test layer.

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

    dates: Columns of a table whose values are dates, and the parts of these dates that a record consists of:
    ``{when: [year, month, weekday, hour]}``. Month, weekday and hour become a value 0 or 1 for each of their
    values. Checkpoints keep it.

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
    mean_value: float | Sequence[float] = ...,
    std_value: float | Sequence[float] = ...,
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
    dates: Mapping[str, Any] = ...,
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

    split: Read only the training records or only the test records, e.g. ``{part: train, test_share: 0.2}``. By
    default all records are read.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store with a record, its first, by which each record is divided.

    mean_value: Number subtracted from each value, if there is no mean_file; or a list with a number for each
    channel of an image (channels, height, width), otherwise for each value of a record.

    std_value: Number by which each value is divided, if there is no std_file; or a list as in mean_value.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set this key in the layers of the test and validation nets,
    too; these layers use the mean and standard deviation of the training records.

    batchsize: Number of records per step of the whole worker group, divided among its workers as equally as
    possible; or a list with a number for each worker.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this number of first records.

    prefetching: Unused, because batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Number of blocks in a window for ``shuffle: block``. For Parquet with large row groups, the number of
    row groups.

    last_batch: What to do with an incomplete batch at the end of an epoch: fill it from the next epoch, drop it,
    or pad it.

    on_error: What to do with a record that cannot be read: raise an error, use the next good record instead, or a
    random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. Options for hdfs:// are client (native,
    pyarrow, webhdfs), and with the client native also deadline_s, http (of the NameNode), config_dir,
    kerberos_principal, kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default there is no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem, or decoded, and not
    used yet. One block is always allowed. This memory is part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are requested, read, shuffled, or kept for the next epoch. The default is 1280, but all layers of a
    process that read stores together use at most a third of the process's memory. In this division, a layer that
    shuffles gets twice the share of a test layer.

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

    dates: Columns of a table whose values are dates, and the parts of these dates that a record consists of:
    ``{when: [year, month, weekday, hour]}``. Month, weekday and hour become a value 0 or 1 for each of their
    values. Checkpoints keep it.

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
    r"""Windows of a text: (N, unroll_len + 1) numbers of characters.  Column t has the character of time step t. The
    last column is only the label of the last time step. The text is divided into segments of equal length, one
    for each row of the batches of all worker groups. Each batch has the next window of each segment. A window
    starts at the last character of the previous window.  After a window that starts in the last ``unroll_len``
    characters of a segment, all rows start again at the beginning of their segments. Such a window ends in the
    next segment; in the last segment it ends at the start of the text. (SINGA 0.3 reads past the end of the text
    there.)

    path: URL or path of the text: UTF-8, gzipped or not.

    vocab_path: File that contains each character once, in the order of the characters' numbers. If empty, the
    vocabulary is the characters of the text, in the order of their code points.

    batchsize: Number of segments of the text that a worker group reads in parallel."""

def CharRNNOutput(
    *,
    path: str = ...,
    vocab_path: str = ...,
    batchsize: int = ...,
    char_rnn_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Write the character of each row of numbers, (N, 1), to ``file``; the default is standard output.
    ``char_rnn_conf`` names the file with the vocabulary.

    path: URL or path of the text: UTF-8, gzipped or not.

    vocab_path: File that contains each character once, in the order of the characters' numbers. If empty, the
    vocabulary is the characters of the text, in the order of their code points.

    batchsize: Number of segments of the text that a worker group reads in parallel."""

def ClassToken(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Add a learned row at the start of each sequence: x (T N, D) becomes y ((T + 1) N, D).  The row is the same for
    all sequences: the param token (D,), whose initial values are normal with standard deviation 0.02. Set
    ``unroll_len: T + 1`` for this layer and for the layers that read it. To select the row at the end of the net,
    use a TimePooling with ``pool: FIRST``.  ClassToken does not work with a PaddingMask. With padding, add a
    number for the token at the start of each record instead, so that an Embedding learns the row of this number."""

def Concate(
    *,
    concate_dim: int = ...,
    num_concates: int = ...,
    concate_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Join the sources along axis ``concate_dim``.  Axis 0 is the batch. If batches are joined, their labels are
    joined, too. In an unrolled net, the batches of each time step are joined.

    concate_dim: Axis along which the sources are joined; 0 is the batch.

    num_concates: Number of outputs."""

def ContrastiveLoss(
    *,
    margin: float = ...,
    contrastiveloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = sum(s d^2 + (1 - s) max(0, margin - d)^2) / (2 N), with d = ||x1 - x2||.  The sources are x1 and x2,
    (N, ...) read as rows (N, D), and s (N, 1), for example a TargetInput. s is 1 if the two records are alike,
    else 0. The loss follows Hadsell et al. (2006). Caffe has the same loss.

    margin: Distance above which the loss of two different records is 0."""

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
    r"""y[n, f, i s + k d - pad, j s + l d - pad] += W[c, f, k, l] x[n, c, i, j], from y = b.  Here s is ``stride``
    and d is ``dilation``. x has the shape (N, C, H, W) and y (N, F, OH, OW), with OH = (H - 1) s + d (kernel - 1)
    + 1 - 2 pad + output_pad and OW likewise. The params are W (C, F kernel_y kernel_x), with columns in the order
    f, k, l, and b (F,). Without b the layer computes the gradient of a `Convolution` with respect to its input.
    With ``groups`` G, channels and filters are divided into G groups, and W has F / G filters.

    kernel: Height and width of the window.

    pad: Rows and columns of padding on each side.

    stride: Step of the window on both axes.

    kernel_x: Width of the window.

    kernel_y: Height of the window.

    pad_x: Columns of padding on the left and on the right.

    pad_y: Rows of padding above and below.

    stride_x: Step of the window to the right.

    stride_y: Step of the window down.

    num_filters: Number of filters, which is the number of channels of the output.

    dilation: Distance between neighbouring pixels of the window, on both axes.

    dilation_x: Horizontal distance between neighbouring pixels of the window.

    dilation_y: Vertical distance between neighbouring pixels of the window.

    groups: Number of groups into which channels and filters are divided. A filter reads only the channels of its
    group. With one group for each channel, the convolution is depthwise.

    bias_term: Whether each filter has a bias.

    output_pad: Number of rows to add at the bottom of the output, and of columns to add at the right. It must be
    less than the stride or the dilation."""
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
    ``stride`` and d is ``dilation``. x has the shape (N, C, H, W) and counts as 0 outside the image. y has the
    shape (N, F, OH, OW). The params are W (F, C kernel_y kernel_x), with columns in the order c, k, l, and b
    (F,). The kernel is not flipped. With ``bias_term: false`` there is no b.  With ``groups`` G, filters and
    channels are divided into G groups. A filter reads only the channels of its group, and W has C / G channels.
    With G = C the convolution is depthwise.

    kernel: Height and width of the window.

    pad: Rows and columns of padding on each side.

    stride: Step of the window on both axes.

    kernel_x: Width of the window.

    kernel_y: Height of the window.

    pad_x: Columns of padding on the left and on the right.

    pad_y: Rows of padding above and below.

    stride_x: Step of the window to the right.

    stride_y: Step of the window down.

    num_filters: Number of filters, which is the number of channels of the output.

    dilation: Distance between neighbouring pixels of the window, on both axes.

    dilation_x: Horizontal distance between neighbouring pixels of the window.

    dilation_y: Vertical distance between neighbouring pixels of the window.

    groups: Number of groups into which channels and filters are divided. A filter reads only the channels of its
    group. With one group for each channel, the convolution is depthwise.

    bias_term: Whether each filter has a bias.

    workspace_byte_limit: Maximum workspace of cuDNN, in MB."""
CConvolution = Convolution
CudnnConv = Convolution

def Dropout(
    *,
    dropout_ratio: float = ...,
    dropout_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""In training y = x mask, mask = [u < 1 - p] / (1 - p), u uniform in [0, 1); otherwise y = x.  The mask depends
    only on the seed, the layer, the step, the time step and the row in the group's batch. The mask of a record is
    therefore the same for any number of workers.

    dropout_ratio: Probability that a value is dropped in training."""

def Dummy(
    *,
    input: bool = ...,
    output: bool = ...,
    shape: int | Sequence[int] = ...,
    dummy_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Stand in for any other layer in tests.  With ``input`` the layer draws its data from U[0, 1); with ``output``
    it draws the gradients of its source. Otherwise it copies data and gradients. ``dummy_conf.shape`` is the
    shape of the whole group's batch.

    input: Whether the layer outputs random data of ``shape``.

    output: Whether the layer computes random gradients of its source.

    shape: Shape of the data, batch first."""

def Embedding(
    *,
    vocab_size: int = ...,
    feature_dim: int = ...,
    embedding_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Replace each number of the source by a row of a table: (rows, feature_dim).  The table is a param (vocab_size,
    feature_dim). If each record has k numbers that are not time steps, (N, k), the output is (N, k, feature_dim),
    as in PyTorch.  The number -1 stands for padding. Its output row is zeros, as SINGA's documentation says. The
    gradient of a row of the table is the sum of the gradients of all output rows that are copies of this row.
    (SINGA omits some of these gradients.)

    vocab_size: Number of rows of the table.

    feature_dim: Number of values in each row."""

def EuclideanLoss(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = sum (x - t)^2 / N, for a prediction x and a target t.  As in SINGA, the gradient is (x - t) / N, which
    is the gradient of half the loss. If the target requires a gradient, its gradient is (t - x) / N.  The output
    is x - t, (N, D). A third source, a WeightInput, has a weight w for each record. Then loss = sum w (x - t)^2 /
    N, and the gradient is w (x - t) / N."""

def GELU(
    *,
    approximate: Literal["none", "tanh"] = ...,
    gelu_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x (1 + erf(x / sqrt(2))) / 2, elementwise. After Hendrycks and Gimpel (2016).  With ``approximate: tanh``
    y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    approximate: Whether to compute the error function exactly ("none"), or to approximate it by a tanh."""

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

    bias_term: Whether the layer has biases. As in SINGA, there are no biases if the job lists only the weights as
    params.

    reverse: Whether to read the time steps from the last to the first. For a bidirectional layer, join a layer
    and a reversed layer by a Concate along axis 1.

    carry_state: Whether a batch starts with the last state of the previous batch, if both belong to the same
    stream."""

def GlobalPooling(
    *,
    pool: Literal["MAX", "AVG"] = ...,
    globalpooling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y (N, C) = the mean or the largest value of each channel of x (N, C, H, W): ``pool`` AVG or MAX.  Among equal
    largest values, the first in row-major order gets the gradient. The layer follows Lin et al. (2014).

    pool: Whether to compute the mean of all pixels, or the largest value."""

def GroupNorm(
    *,
    num_groups: int = ...,
    epsilon: float = ...,
    groupnorm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each group of channels of an
    image.  x and y have the shape (N, C, H, W). The params, each (C,), are scale and shift, with initial values 1
    and 0.

    num_groups: Number of groups of neighbouring channels. It must divide the number of channels.

    epsilon: Added to the variance."""

def HuberLoss(
    *,
    delta: float = ...,
    huberloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = mean of h(x - t), with h(d) = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2).  The mean is
    over records and values, as in PyTorch's HuberLoss. With ``delta: 1``, the loss is the smooth L1 loss.
    Sources, output and weights are the same as in EuclideanLoss.

    delta: Absolute difference up to which the loss is quadratic. Beyond it, the loss is linear."""

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
    r"""Crop, mirror and scale images x (N, C, H, W): y = ``scale`` x.  Images are cropped to (N, C, cropsize,
    cropsize), or stay whole if ``cropsize`` is 0. In training each image is cropped at a random position, and
    ``mirror`` flips half of the images left to right. Otherwise the centre is cropped. The random numbers depend
    only on the seed, the layer, the epoch and the record. So results are the same for any number of workers and
    after a resume. Labels are passed on.  ``pad`` adds zeros on each side of an image before it is cropped. If
    ``cropsize`` is the size of the image, training then shifts images by up to ``pad`` pixels.

    scale: Multiplies each pixel.

    cropsize: Height and width of the crop, at a random place in training, else at the centre; 0 keeps the whole
    image.

    mirror: Mirror half of the training images.

    pad: Number of rows and columns of zeros to add to each side of an image before it is cropped. The zeros are
    added after normalisation.

    meanfile: Store whose first record is subtracted; read by the deprecated RGBImage layer only."""

def InnerProduct(
    num_output: int,
    *,
    bias_term: bool = ...,
    transpose: bool = ...,
    innerproduct_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x W^T + b, where x (N, ...) is read as rows (N, D), W is (H, D), b is (H,) and y is (N, H).  The values of
    images are in the order C, H, W. With ``transpose`` y = x W + b, and W is (D, H). With ``bias_term: false``,
    which SINGA ignores, there is no b.

    num_output: Number of output features.

    bias_term: Whether a bias is added.

    transpose: Whether the weights have the shape (inputs, outputs) instead of (outputs, inputs)."""

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
    x and y have the shape (N, C, H, W). At the first and last channels the sum has fewer terms, but alpha is
    still divided by local_size. The gradient is gy / S^beta - 2 beta alpha / local_size x T, where T[c] is the
    sum of gy x / S^(beta + 1) over the same channels.

    local_size: Number of channels in the window; an odd number.

    alpha: Factor of the sum of squares; it is divided by local_size.

    beta: Exponent.

    knorm: Constant that is added to the scaled sum of squares."""
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
    r"""Long short-term memory: c' = f c + i g, h' = o tanh(c').  i = sigmoid(x W_i^T + h U_i^T + b_i), and likewise f
    and o; g = tanh(x W_g^T + h U_g^T + b_g). The first cell c is zeros or, with ``carry_state``, the last cell of
    the previous batch. If another layer supplies the first state h, the first cell is zeros.

    dim_hidden: Units of the hidden state.

    bias_term: Whether the layer has biases. As in SINGA, there are no biases if the job lists only the weights as
    params.

    reverse: Whether to read the time steps from the last to the first. For a bidirectional layer, join a layer
    and a reversed layer by a Concate along axis 1.

    carry_state: Whether a batch starts with the last state of the previous batch, if both belong to the same
    stream."""

def LabelInput(
    column: str,
    *,
    label_conf: Mapping[str, Any] = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Read one of several labels of records: (batchsize / n_workers, 1), labels as floats.  Use the layer as the
    second source of a SoftmaxLoss. The ``store_conf`` of the layer that reads the features lists the columns with
    labels, e.g. ``label: [species, island]``. Give this layer the same ``store_conf``, so that both read the same
    records in each step. Each label has its own classes.

    column: Name of the column, one of the list ``label`` in ``store_conf``."""

def LayerNorm(
    *,
    epsilon: float = ...,
    layernorm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each row of x (N, D).  The
    params, each (D,), are scale and shift, with initial values 1 and 0.

    epsilon: Added to the variance."""

def LeakyReLU(
    *,
    negative_slope: float = ...,
    leakyrelu_conf: Mapping[str, Any] = ...,
    relu_conf: Mapping[str, Any] = ...,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x where x is positive, else y = ``negative_slope`` x, elementwise. After Maas et al. (2013).

    negative_slope: Slope below zero."""

def MultiHeadAttention(
    num_heads: int,
    *,
    causal: bool = ...,
    bias_term: bool = ...,
    rotary_base: float | None = ...,
    carry_state: bool = ...,
    dropout_ratio: float = ...,
    multiheadattention_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = concat_h(softmax(Q_h K_h^T / sqrt(d)) V_h) W_o^T + b_o, with [Q K V] = x W_i^T + b_i and d = D /
    num_heads.  With one source, each sequence attends to itself. x and y have the shape (T N, D): N rows for each
    of T time steps, beginning with the first time step. With ``causal``, a query attends only to the keys of its
    own time step and of earlier time steps.  The params are qkv_weight W_i (3 D, D), output_weight W_o (D, D),
    qkv_bias b_i (3 D,) and output_bias b_o (D,). W_i and b_i have D rows for queries, then D rows for keys, then
    D rows for values.  For cross-attention, add a second source (S N, D) with S time steps. Keys and values are
    then computed from this source. If the last source is a PaddingMask, the attention weights of padding are 0.
    If all keys of a query are padding, the output for this query is b_o.

    num_heads: Number of heads. It must divide the number of features.

    causal: Whether each time step attends only to itself and to earlier time steps.

    bias_term: Whether biases are added to queries, keys, values and output.

    rotary_base: Base of rotary position embeddings (RoPE), usually 10000. At time step t, features i and i + d /
    2 of the d features of a head are rotated by the angle t rotary_base^(-2 i / d). By default, queries and keys
    are not rotated.

    carry_state: Whether to attend also to the time steps of earlier batches of the same stream. Requires
    ``causal: true``. Not supported in training.

    dropout_ratio: Probability that an attention weight is dropped in training. The other weights are divided by 1
    - ``dropout_ratio``."""

def Multiply(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x1 x2 ..., elementwise, for two or more sources of equal shape.  If a source has images (N, C, H, W),
    other sources may be gates of channels, (N, C) or (N, C, 1, 1). A gate multiplies all pixels of each channel.
    The gradient of a source is the gradient of y times all other sources. For a gate, these products are summed
    over the pixels."""

def OneHot(
    *,
    vocab_size: int = ...,
    onehot_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Convert each number of the source to a one-hot row: (rows, vocab_size).  In each row, the column with the
    index of the number is 1, and all other columns are 0. If no layer reads the rows themselves, only the indices
    are computed.

    vocab_size: Length of a one-hot row."""

def PaddingMask(
    *,
    padding: int = ...,
    lengths: bool = ...,
    paddingmask_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Mark the time steps that are not padding: (rows, 1) bool.  A value is true if the number of the source differs
    from ``padding``. With ``lengths``, the source has the length of each sequence, (N, 1), and a value is true if
    its time step is within this length. MultiHeadAttention, TimePooling, GRU, LSTM and RNN ignore padding if they
    read the mask as an additional source.

    padding: The number that stands for padding.

    lengths: Whether the source has the length of each sequence, instead of the numbers at its time steps."""

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
    r"""Softmax and cross entropy of each pixel of scores (N, C, H, W), for segmentation.  The loss is the mean over
    all pixels that are not ignored. The second source has H W labels for each record, row by row. For example, a
    TargetInput with ``target_conf: {size: H W}`` reads them from the field ``target`` of the records.  The output
    is p (N, H W, C). The keys are the same as in SoftmaxLoss, but they apply to pixels instead of rows.

    topk: A record counts as correct if its label is among the ``topk`` highest scores.

    scale: Factor of the loss, the accuracy and the gradient.

    label_smoothing: Part of the target that is divided equally among all classes, in training and in tests.

    ignore_index: Label of rows to ignore: in the loss and its mean, in the accuracy and in the gradient.

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
    Padding is never the largest value. Among equal largest values, the first in row-major order gets the
    gradient. With ``ties: all``, each of them gets the gradient. The mean is the sum of the window's pixels
    divided by kernel_y kernel_x. If ``count_include_pad`` is false, which is the default of CudnnPool, the sum is
    divided by the number of pixels inside the image.

    kernel: Height and width of the window.

    pad: Rows and columns of padding on each side.

    stride: Step of the window on both axes.

    kernel_x: Width of the window.

    kernel_y: Height of the window.

    pad_x: Columns of padding on the left and on the right.

    pad_y: Rows of padding above and below.

    stride_x: Step of the window to the right.

    stride_y: Step of the window down.

    pool: Whether to compute the largest value of each window, or the mean.

    ties: Which value gets the gradient if several values of a window are the largest: the first one, or all of
    them as in SINGA's kPooling.

    count_include_pad: Whether padding counts in a mean. The default is true, except for CudnnPool."""
CPooling = Pooling
CudnnPool = Pooling

def PositionalEmbedding(
    max_length: int,
    *,
    carry_state: bool = ...,
    positionalembedding_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x + table[t], where t is the time step of each row of x (T N, D).  The table is a param (max_length, D).
    Its initial values are normal with standard deviation 0.02.

    max_length: Number of positions, which is the maximum number of time steps of a sequence.

    carry_state: Whether positions continue from the previous batch of the same stream. Not supported in training."""

def RBMHid(
    hdim: int,
    *,
    bias_term: bool = ...,
    gaussian: bool = ...,
    rbm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""The hidden units of an RBM: probabilities sigmoid(v W^T + c), or means v W^T + c.  The source is the RBMVis,
    with visible units v (N, D). The params are W (H, D), which RBMVis and RBMHid share, and c (H,). The RBMVis
    computes the gradient of W, and the RBMHid adds nothing to it. The gradient of a shared param is the mean over
    the layers that share it, so W learns from half of the gradient, as in SINGA. To use the whole gradient, set
    ``share_gradient: sum`` for W in one of the two layers.

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
    r"""The visible units of an RBM: the records x (N, ...), read as rows (N, D), and their reconstruction.  The
    ``srclayers`` are the layer with the records and the RBMHid. The values of images are in the order C, H, W.
    The params are W (H, D), where H is ``rbm_conf.hdim``, and b (D,).  A reconstruction is sigmoid(h W + b), or h
    W + b for Gaussian units, where h is a sample of the hidden units. In the sample, a hidden unit is 1 with its
    probability, else 0. A Gaussian hidden unit is drawn from a normal distribution with the mean of the unit and
    variance 1. The reconstruction itself is not sampled. The gradient of W is (h-^T v- - h+^T v+) / N, where -
    marks states of the model and + states given the records.  The metric "squared_error" is the mean over records
    of sum (x - v)^2, where v is the first reconstruction of x.

    hdim: Number of hidden units; set it in both layers.

    bias_term: Whether there is a bias.

    gaussian: Whether the units of this layer are Gaussian, linear with unit variance, instead of Bernoulli."""

def RMSNorm(
    *,
    epsilon: float = ...,
    rmsnorm_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = scale x / sqrt(m + epsilon), with the mean m of the squares of each row of x (N, D).  The param is scale
    (D,), with initial value 1.

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

    bias_term: Whether the layer has biases. As in SINGA, there are no biases if the job lists only the weights as
    params.

    reverse: Whether to read the time steps from the last to the first. For a bidirectional layer, join a layer
    and a reversed layer by a Concate along axis 1.

    carry_state: Whether a batch starts with the last state of the previous batch, if both belong to the same
    stream.

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
    r"""Random data, uniform in [``low``, ``high``), rounded down if ``integer`` is set.  In a test, from the second
    batch on, the output is instead the output of the layer ``dynamic_srclayer`` in the previous batch.

    dynamic_srclayer: Layer whose output of the previous batch is the output of this layer in a test.

    shape: Shape of the data, batch first.

    integer: Whether to round the random initial values down.

    low: Lower bound of the random initial values.

    high: Upper bound of the random initial values, excluded."""

def RNNLabel(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Label each time step with the number that the source has at the next time step."""

def ReLU(
    *,
    negative_slope: float = ...,
    relu_conf: Mapping[str, Any] = ...,
    activation_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = x where x is positive, else y = ``relu_conf.negative_slope`` x.  SINGA ignores the slope.

    negative_slope: Slope below zero."""

def RecordInput(
    *,
    backend: str = ...,
    path: str = ...,
    split: Mapping[str, Any] | None = ...,
    mean_file: str = ...,
    std_file: str = ...,
    mean_value: float | Sequence[float] = ...,
    std_value: float | Sequence[float] = ...,
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
    dates: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Read records from any store: the field ``data`` if there is one, else ``pixel``.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training records or only the test records, e.g. ``{part: train, test_share: 0.2}``. By
    default all records are read.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store with a record, its first, by which each record is divided.

    mean_value: Number subtracted from each value, if there is no mean_file; or a list with a number for each
    channel of an image (channels, height, width), otherwise for each value of a record.

    std_value: Number by which each value is divided, if there is no std_file; or a list as in mean_value.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set this key in the layers of the test and validation nets,
    too; these layers use the mean and standard deviation of the training records.

    batchsize: Number of records per step of the whole worker group, divided among its workers as equally as
    possible; or a list with a number for each worker.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this number of first records.

    prefetching: Unused, because batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Number of blocks in a window for ``shuffle: block``. For Parquet with large row groups, the number of
    row groups.

    last_batch: What to do with an incomplete batch at the end of an epoch: fill it from the next epoch, drop it,
    or pad it.

    on_error: What to do with a record that cannot be read: raise an error, use the next good record instead, or a
    random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. Options for hdfs:// are client (native,
    pyarrow, webhdfs), and with the client native also deadline_s, http (of the NameNode), config_dir,
    kerberos_principal, kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default there is no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem, or decoded, and not
    used yet. One block is always allowed. This memory is part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are requested, read, shuffled, or kept for the next epoch. The default is 1280, but all layers of a
    process that read stores together use at most a third of the process's memory. In this division, a layer that
    shuffles gets twice the share of a test layer.

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

    dates: Columns of a table whose values are dates, and the parts of these dates that a record consists of:
    ``{when: [year, month, weekday, hour]}``. Month, weekday and hour become a value 0 or 1 for each of their
    values. Checkpoints keep it.

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
    mean_value: float | Sequence[float] = ...,
    std_value: float | Sequence[float] = ...,
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
    dates: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Write the source as records with a field ``data``, to any kind of store.  If the last source has labels, the
    records also have a field ``label``. ``store_conf.backend`` names the format; the default is kvfile. The file
    is written when the net is closed.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training records or only the test records, e.g. ``{part: train, test_share: 0.2}``. By
    default all records are read.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store with a record, its first, by which each record is divided.

    mean_value: Number subtracted from each value, if there is no mean_file; or a list with a number for each
    channel of an image (channels, height, width), otherwise for each value of a record.

    std_value: Number by which each value is divided, if there is no std_file; or a list as in mean_value.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set this key in the layers of the test and validation nets,
    too; these layers use the mean and standard deviation of the training records.

    batchsize: Number of records per step of the whole worker group, divided among its workers as equally as
    possible; or a list with a number for each worker.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this number of first records.

    prefetching: Unused, because batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Number of blocks in a window for ``shuffle: block``. For Parquet with large row groups, the number of
    row groups.

    last_batch: What to do with an incomplete batch at the end of an epoch: fill it from the next epoch, drop it,
    or pad it.

    on_error: What to do with a record that cannot be read: raise an error, use the next good record instead, or a
    random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. Options for hdfs:// are client (native,
    pyarrow, webhdfs), and with the client native also deadline_s, http (of the NameNode), config_dir,
    kerberos_principal, kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default there is no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem, or decoded, and not
    used yet. One block is always allowed. This memory is part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are requested, read, shuffled, or kept for the next epoch. The default is 1280, but all layers of a
    process that read stores together use at most a third of the process's memory. In this division, a layer that
    shuffles gets twice the share of a test layer.

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

    dates: Columns of a table whose values are dates, and the parts of these dates that a record consists of:
    ``{when: [year, month, weekday, hour]}``. Month, weekday and hour become a value 0 or 1 for each of their
    values. Checkpoints keep it.

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
    r"""Reshape each record of x to ``shape``: y (N, ``shape``).  The values keep their order. Values of images are in
    the order C, H, W.

    shape: Lengths of the axes of a record. One length may be -1; this length is then computed from the other
    lengths."""

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
    r"""Draw a column for each row, (N, 1), with probabilities ``softmax(x / temperature)``.  x is the source, or with
    ``probabilities`` the logarithm of the source. At temperature 0 the result is the column with the highest
    value, as in `ArgSort`.

    temperature: Divisor of the logits. Below 1, likely columns become more likely. At 0, the most likely column
    is selected.

    probabilities: Whether the source outputs probabilities, as a Softmax does, instead of logits."""

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
    r"""Sigmoids and binary cross entropy: loss = mean of -t log p - (1 - t) log(1 - p), p = sigmoid(x).  This loss is
    for multi-label classification. The first source x (N, D) has a score for each label. The second source t (N,
    D), for example a TargetInput, has a target in [0, 1] for each label; 1 means that the record has the label.
    The loss is computed from the scores, in a form that does not overflow. The mean is over records and labels.
    The output is p (N, D). The metric "binary_accuracy" is the fraction of labels with (p > 0.5) == (t > 0.5).
    The gradient is (p - t) / (N D). If the target requires a gradient, its gradient is -x / (N D).  A third
    source, a WeightInput, has a weight for each record, which multiplies the record's loss and gradient. The
    metric "binary_accuracy" counts all records alike."""

def Slice(
    *,
    slice_dim: int = ...,
    num_slices: int = ...,
    slice_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Divide the source into ``num_slices`` nearly equal pieces along axis ``slice_dim``.  Each layer that reads the
    Slice gets one piece. Axis 0 is the batch. In an unrolled net, the batch of each time step is divided. Pieces
    of the batch are views, not copies.

    slice_dim: Axis along which the source is sliced; 0 is the batch.

    num_slices: Number of pieces."""

def Softmax(
    *,
    num_softmax_per_instance: int = ...,
    softmax_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""y = exp(x) / sum exp(x), for each record of x (N, ...) read as a row: y (N, D).  With
    ``num_softmax_per_instance`` n, each row is divided into n equal parts, and each part has its own softmax. For
    images (N, C, H, W) n is 1, or H W for a softmax over the channels of each pixel; y is then (N, C, H, W). The
    gradient is y (gy - sum(gy y)).

    num_softmax_per_instance: Number of equal parts of a row; each part has its own softmax. For images, set 1, or
    the number of pixels for a softmax over the channels of each pixel."""
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
    r"""Softmax and cross entropy: loss = scale / N sum -log p[label], of x (N, ...) read as rows (N, D).  SINGA's
    name CudnnSoftmaxLoss works, too. In SINGA that type reports only the loss, as a sum.  The output is p (N, D),
    with p = softmax(x). The metric "accuracy" is scale / N times the number of rows whose label is among the
    ``topk`` highest scores. If scores are equal, the higher class comes first. The gradient is scale / N (p -
    onehot).  With ``label_smoothing`` e the target is (1 - e) onehot + e / D instead of onehot, after Szegedy et
    al. (2016).  A third source, a WeightInput, has a weight w for each record. Then loss = scale / N sum -w log
    p[label], and the gradient of a record is multiplied by its weight. The accuracy counts all records alike.
    With ``class_weights`` c, loss = scale / Z sum -c[label] log p[label], where Z = sum c[label], as in PyTorch's
    cross_entropy. Rows whose label is ``ignore_index`` have the weight 0. Z is the sum over the batch of the
    whole worker group: in each training step the workers send each other their sums. In an unrolled net Z is the
    sum over all time steps, or over each time step if the steps are computed one by one. If all rows of a batch
    are ignored, the gradients are 0. Label smoothing multiplies the loss of all classes by the weight of the
    label; PyTorch multiplies each by the weight of its class.  The metrics are means over all rows that are not
    ignored. Class weights do not change the accuracy.  If ``mixup`` or ``cutmix`` in ``store_conf`` mixes two
    records in each row, the loss is s loss(label) + (1 - s) loss(label'), where s is the weight of the first
    record. The accuracy counts the label with the larger weight.  With ``focal_gamma`` g the loss of a row is -(1
    - p[label])^g log p[label], after Lin et al. (2017).

    topk: A record counts as correct if its label is among the ``topk`` highest scores.

    scale: Factor of the loss, the accuracy and the gradient.

    label_smoothing: Part of the target that is divided equally among all classes, in training and in tests.

    ignore_index: Label of rows to ignore: in the loss and its mean, in the accuracy and in the gradient.

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
    r"""Pass the data of the source to ``num_splits`` layers, and sum the gradients of these layers.

    num_splits: Number of readers."""

def Stack(
    *,
    images: bool = ...,
    stack_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Join the T time steps of each sequence to one record: x (T N, D) becomes y (N, T, D).  Set ``unroll_len: 1``
    for this layer.

    images: Whether to output images (N, D, 1, T) with D channels, for a Convolution or Pooling over time with
    ``kernel_y: 1``."""

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
    r"""Read the targets of records: (batchsize / n_workers, targets).  Use the layer as the second source of a
    regression loss, such as EuclideanLoss. In a table with named columns, the targets are the columns that
    ``target`` names. Other records, such as arrays (X, y) from Python, have their targets in the field
    ``target``, with ``target_conf.size`` values.  Give this layer the ``store_conf`` of the layer that reads the
    features, so that both read the same records in each step. The shape, mean and std in ``store_conf`` describe
    the features.

    size: Number of targets in a record."""

def TimePooling(
    *,
    pool: Literal["AVG", "MAX", "FIRST", "LAST"] = ...,
    timepooling_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Pool the time steps of each sequence to one record: x (T N, D) becomes y (N, D).  ``pool`` selects the mean of
    the time steps, their largest values, the first or the last time step. Set ``unroll_len: 1`` for this layer.
    If the second source is a PaddingMask, padding is ignored, and the output for a sequence of padding only is
    zeros. If several values are the largest, the first one gets the gradient.

    pool: What to compute: the mean of the time steps, the largest value of each feature, the first time step, or
    the last one."""

def TorchLoss(
    loss: str | Callable[..., Any],
    *,
    args: Mapping[str, Any] = ...,
    target: Literal["labels", "data"] = ...,
    torchloss_conf: Mapping[str, Any] = ...,
    **rest: Any,
) -> dict[str, Any]:
    r"""loss = f(x, ..., target), differentiated by PyTorch; the last source has the target.  The loss should be a
    mean over the records, as losses of `torch.nn` are by default, because the gradients of several workers are
    averaged. The metric is "loss". Predictions are the values of the first source.

    loss: A class, such as ``torch.nn:CrossEntropyLoss``, or a function of outputs and target, such as
    ``mymodels:my_loss``.

    args: Keyword arguments of the class, or of each call of the function.

    target: What the loss reads from the last source: labels, (N,) int64, or data."""

def TorchModule(
    module: str | Callable[..., Any],
    *,
    args: Mapping[str, Any] = ...,
    num_outputs: int | None = ...,
    seed: int | None = ...,
    torchmodule_conf: Mapping[str, Any] = ...,
    **rest: Any,
) -> dict[str, Any]:
    r"""y = module(x, ...), computed and differentiated by PyTorch: x and y (N, ...), one x for each source.  A module
    that returns several tensors, in a tuple or dict, needs ``num_outputs``.  The params have the names and the
    initial values of the module's state dict. Buffers of floats, such as the running mean of a BatchNorm, are
    averaged over the workers. Each worker has its own buffers of integers. Checkpoints include all of these
    buffers. A param whose ``requires_grad`` is False is not trained.  Random numbers, such as the masks of
    Dropout, depend only on the job's seed, the layer, the step and the worker. The layer can be partitioned by
    records, but not by features.

    module: The class of the module, or a function that returns a module: ``mymodels:Encoder`` is Encoder in
    mymodels.py.

    args: Keyword arguments of the class or function.

    num_outputs: Number of tensors that the module returns in a tuple, list or dict. The first layer that reads
    this layer gets the first tensor, the second layer the second tensor, and so on. By default, the module
    returns one tensor for all of these layers.

    seed: Seed of the initial values, for ``torch.manual_seed``. The default depends only on the job's seed and
    the name of the layer."""

def Transpose(
    axes: int | Sequence[int],
    *,
    transpose_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Exchange the two ``axes`` of x.

    axes: The two axes to exchange. Axis 0, the batch, cannot be exchanged."""

def TripletLoss(
    *,
    margin: float = ...,
    tripletloss_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Loss = mean of max(0, d(a, p) - d(a, n) + margin), with d(x, y) = ||x - y + 1e-6||.  The sources are anchors
    a, records p that are similar to them, and records n that are not, each (N, ...) read as rows (N, D).
    PyTorch's TripletMarginLoss computes the same.

    margin: The loss is 0 if the negative record is farther from the anchor than the positive record by this
    distance."""

def Unstack(
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Divide each record into T time steps: x (N, T, D), or images (N, D, 1, T), becomes y (T N, D).  Set
    ``unroll_len: T`` for this layer."""

def Upsample(
    *,
    factor: int = ...,
    mode: Literal["NEAREST", "BILINEAR"] = ...,
    upsample_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Enlarge images x (N, C, H, W) by ``factor``: y (N, C, factor H, factor W).  With ``mode: NEAREST`` each pixel
    is repeated. With ``mode: BILINEAR`` pixel i of y is x at the position (i + 1/2) / factor - 1/2, interpolated
    linearly between the two nearest pixels, on both axes.

    factor: Factor by which height and width are multiplied.

    mode: Whether to repeat each pixel, or to interpolate linearly between the centres of pixels. Beyond the
    outermost centres, interpolated values are constant."""

def WeightInput(
    *,
    backend: str = ...,
    path: str = ...,
    split: Mapping[str, Any] | None = ...,
    mean_file: str = ...,
    std_file: str = ...,
    mean_value: float | Sequence[float] = ...,
    std_value: float | Sequence[float] = ...,
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
    dates: Mapping[str, Any] = ...,
    na_values: Sequence[str] = ...,
    lags: Mapping[str, Any] | None = ...,
    header: bool | None = ...,
    quotes: bool | None = ...,
    charset: str = ...,
    store_conf: Mapping[str, Any] = ...,
    **common: Unpack[Common],
) -> dict[str, Any]:
    r"""Read the weights of records: (batchsize / n_workers, 1).  Use the layer as the third source of a loss layer.
    In a table with named columns, the weights are the column that ``weight`` names. Other records, such as arrays
    (X, y, weights) from Python, have their weights in the field ``weight``. Weights are at least 0. A record of
    weight 0 does not affect loss and gradient.  Give this layer the ``store_conf`` of the layer that reads the
    features, so that both read the same records in each step.

    backend: Format of the store; detected if empty.

    path: URL or path of the records.

    split: Read only the training records or only the test records, e.g. ``{part: train, test_share: 0.2}``. By
    default all records are read.

    mean_file: Store whose first record is subtracted from each record.

    std_file: Store with a record, its first, by which each record is divided.

    mean_value: Number subtracted from each value, if there is no mean_file; or a list with a number for each
    channel of an image (channels, height, width), otherwise for each value of a record.

    std_value: Number by which each value is divided, if there is no std_file; or a list as in mean_value.

    standardise: Subtract from each value of a record, or each channel of an image (channels, height, width), its
    mean over all training records, and divide by its standard deviation. Both are computed once, in 64 bits,
    before the training, and saved in checkpoints. Set this key in the layers of the test and validation nets,
    too; these layers use the mean and standard deviation of the training records.

    batchsize: Number of records per step of the whole worker group, divided among its workers as equally as
    possible; or a list with a number for each worker.

    shape: Shape of one record; of an image always (channels, height, width).

    encoded: Unused, in SINGA too.

    random_skip: Start at a random record among this number of first records.

    prefetching: Unused, because batches are always read while the net computes.

    shuffle: Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch.

    window: Number of blocks in a window for ``shuffle: block``. For Parquet with large row groups, the number of
    row groups.

    last_batch: What to do with an incomplete batch at the end of an epoch: fill it from the next epoch, drop it,
    or pad it.

    on_error: What to do with a record that cannot be read: raise an error, use the next good record instead, or a
    random one.

    max_bad: Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records.

    labels: Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check.

    layout: Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy,
    Pillow and TensorFlow. ``shape`` is (channels, height, width) in both cases.

    storage_options: Options of fsspec for the filesystem of the URL. Options for hdfs:// are client (native,
    pyarrow, webhdfs), and with the client native also deadline_s, http (of the NameNode), config_dir,
    kerberos_principal, kerberos_keytab, kerberos_cache, and Hadoop settings such as dfs.replication.

    augment: Change records at random, in training only; ignored in layers of the test and validation nets.

    cache: Cache blocks of remote files on a local disk of each host. By default there is no cache.

    io_threads: Maximum number of simultaneous reads of a process from a remote filesystem.

    in_flight_mb: Maximum MiB of blocks that a worker has requested from a remote filesystem, or decoded, and not
    used yet. One block is always allowed. This memory is part of memory_mb.

    memory_mb: Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks
    that are requested, read, shuffled, or kept for the next epoch. The default is 1280, but all layers of a
    process that read stores together use at most a third of the process's memory. In this division, a layer that
    shuffles gets twice the share of a test layer.

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

    dates: Columns of a table whose values are dates, and the parts of these dates that a record consists of:
    ``{when: [year, month, weekday, hour]}``. Month, weekday and hour become a value 0 or 1 for each of their
    values. Checkpoints keep it.

    na_values: Words that mean a missing value, such as unknown, in all columns of a table except texts. A word
    that ``categories`` lists is a name there.

    lags: Earlier values of columns of a time series, taken from preceding records: ``{columns: load, n: 3}`` adds
    load_lag1 to load_lag3 to a table that lacks them.

    header: Whether a CSV file begins with a line of column names; detected if not given. If false, the columns of
    a table are called 1, 2, ... by position.

    quotes: Whether fields of a CSV table may be in double quotes. If false, a quote is a character of its field.
    If not given, quoted texts of several lines are refused where each of their lines could be a record.

    charset: Encoding of a CSV table, by Python's name, such as latin-1; it must extend ASCII."""
