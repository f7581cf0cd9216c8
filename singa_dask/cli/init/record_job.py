"""The job for records: a perceptron, a convolutional net, or a recurrent net of words."""

from __future__ import annotations

import itertools
import json
import math

from singa_dask.cli.init.layer_text import as_yaml, layer, scores
from singa_dask.data.stores.store import backends_holding
from singa_dask.shown import plural
from singa_dask.survey.results import Baseline, OutputSurvey, RecordSurvey
from singa_dask.wording import listed, quoted

# batch size for up to MANY records, batch size for more records, and batch size of tests
BATCH, LARGE_BATCH, MANY, TEST_BATCH = 32, 64, 5000, 100
# for tables of more than HUGE records, batch sizes are multiples of SHARED, which 2, 3, 4, 6 and 8 workers divide
HUGE, SHARED, MAX_BATCH = 50_000, 24, 3072
# maximum number of values in a batch
MAX_VALUES = 1 << 20
# minimum and maximum number of epochs, and of steps
EPOCHS, STEPS = (20, 100), (500, 5000)
# minimum number of epochs for more than HUGE records
FEW_EPOCHS = 2
# tables up to this number of bytes are shuffled as a whole in memory
MAX_SHUFFLED = 1 << 26
# number of blocks that are shuffled together, and maximum bytes of row groups, so that a Dask worker with 1 GB suffices
WINDOW, WINDOW_BYTES = 48, 1 << 27
# with more test records than this, the job tests only at the end
MAX_TESTED = 1_000_000
RNN_EPOCHS = 10
# training length for pictures: at least CONVNET_EPOCHS epochs, and CONVNET_STEPS steps or CONVNET_SEEN pictures,
# whichever is less; so a net sees few pictures often
CONVNET_EPOCHS, CONVNET_STEPS, CONVNET_SEEN = 10, 2000, 64_000
HIDDEN, HIDDEN_OF_MANY = (64, 64), (256, 128)
# from this number of features on, hidden layers are larger
WIDE = 100
RATE, LEAST_DROPOUT = 0.001, 0.05
# over the whole training, weights decay at most by the factor exp(-MOST_DECAY)
MOST_DECAY = 8.0
# assumed scores for data without a baseline: a linear model explains most, but not all, of the targets
UNKNOWN = Baseline(0.0, 0.75, 0.8)
FILTERS = (32, 64, 64, 128, 128)
# hidden units of a convolutional net, its dropout, and its weight decay
CONVNET_UNITS, CONVNET_DROPOUT, CONVNET_DECAY = 128, 0.3, 0.05
# smallest batch whose hidden units are normalised: each of four workers still has several records
MIN_NORMALISED = 16
# training shifts pictures by up to this share of their size
SHIFT = 0.1
# minimum height and width of images after the last pooling layer
MIN_POOLED = 4
# settings for a table column of texts
WORD_UNITS, ONE_STEP = 32, "unroll_len: 1"


def record_job(data: RecordSurvey, net: str, next_steps: str) -> str:
    """Return the text of a job for records, without its first lines. ``next_steps`` has commands and name."""
    batch, steps = training_of(data, net)
    epoch = max(1, data.n_records // batch)
    kind = "pictures" if data.is_image else "records"
    tokens = data.measure.tokens if data.measure else "words"
    what = {"convnet": "convolutional net", "word-rnn": f"recurrent net of {tokens}"}.get(net, "multi-layer perceptron")
    unroll = f"  # Time steps: {tokens} of a text.\n  unroll_len: {data.shape[0]}\n" if net == "word-rnn" else ""
    layers = {"convnet": _convnet, "word-rnn": _word_rnn}.get(net, _perceptron)(data)
    then = f"name the classes of new {kind}" if data.has_classes else f"predict {data.outputs_named} of new {kind}"
    return f"""\
# A {what} for {"about " * data.is_about}{data.n_records} {kind} {data.describe()}.
{_names(data)}# Train it, and {then}:
{next_steps}\
# Every random number follows from it: initial values, order of records.
seed: {data.seed}
# Batches to train on: {_passes(steps, epoch)} over the {kind}.
train_steps: {steps}
# A line of progress every so many steps.
disp_freq: {max(1, steps // 20)}
{_testing(data, steps)}checkpoint_freq: {max(1, steps // 4)}
train_one_batch: {{alg: BP}}

{_updater(data, net, batch, steps)}
neuralnet:
{unroll}  layer:
{_inputs(data, batch)}{layers}"""


def training_of(data: RecordSurvey, net: str) -> tuple[int, int]:
    """Return batch size and number of training steps."""
    if net == "mlp" and data.n_records > HUGE:
        batch = _large_batch(data)
        epochs = max(EPOCHS[0] * math.sqrt(HUGE / data.n_records), FEW_EPOCHS)
        return batch, int(epochs * (data.n_records // batch))
    size = BATCH if net != "word-rnn" and data.n_records <= MANY else LARGE_BATCH
    batch = _for_groups(min(size, data.n_records // 10))
    epoch = max(1, data.n_records // batch)
    if net == "convnet":
        return batch, max(CONVNET_EPOCHS * epoch, min(CONVNET_STEPS, CONVNET_SEEN // batch))
    if net != "mlp":
        return batch, max(RNN_EPOCHS * epoch, STEPS[0])
    return batch, max(min(EPOCHS[1] * epoch, STEPS[1]), EPOCHS[0] * epoch, STEPS[0])


def _passes(steps: int, epoch: int) -> str:
    """Return how often a job reads all of its records, such as ``27 passes``."""
    n = steps / epoch
    return plural(round(n), "pass", "passes") if n >= 2 else f"{n:.2g} passes"


def _large_batch(data: RecordSurvey) -> int:
    """Return a batch size that grows with the records of a table, as far as their width allows."""
    widest = max(MAX_VALUES / math.prod(data.shape), 4 * SHARED)
    return SHARED * round(min(LARGE_BATCH * data.n_records / HUGE, widest, MAX_BATCH) / SHARED)


def _for_groups(batch: int) -> int:
    """Round a batch size down so that two or four workers can share it; at least 2."""
    return batch // 4 * 4 or 2


def hidden_of(data: RecordSurvey) -> tuple[int, ...]:
    """Return the numbers of hidden units of a perceptron."""
    return HIDDEN if math.prod(data.shape) < WIDE else HIDDEN_OF_MANY


def _updater(data: RecordSurvey, net: str, batch: int, steps: int) -> str:
    if net == "word-rnn":
        said = "Usually learns well; a lower base_lr learns more slowly, and often a little better."
        return f"updater:\n  # {said}\n  type: Adam\n  learning_rate: {{type: Fixed, base_lr: {RATE}}}\n"
    known = data.baseline or UNKNOWN
    # the less a linear model explains, the more a net has to learn
    rate = RATE * (1 + 2 * min(1.0, 3 * known.curved)) * math.sqrt(max(batch / LARGE_BATCH, 1))
    decay = min(1 / max(known.best, 1 / MOST_DECAY), MOST_DECAY) / (rate * steps / 2)
    # a net with fewer weights than records hardly overfits
    sizes = (math.prod(data.shape), *hidden_of(data))
    decay *= min(1.0, sum(a * b for a, b in itertools.pairwise(sizes)) / data.n_records)
    if net == "convnet":
        rate, decay = 2 * RATE, CONVNET_DECAY
    return f"""\
updater:
  # Adam with decoupled weight decay: a larger value helps against overfitting.
  type: AdamW
  weight_decay: {decay:.2g}
  # Falls to zero over the training.
  learning_rate: {{type: Cosine, base_lr: {rate:.2g}}}
"""


def _dropout_of(data: RecordSurvey) -> float:
    """Return the dropout ratio of a perceptron: half of the unexplained variance, less for many records."""
    ratio = round((1 - (data.baseline or UNKNOWN).best) / 2 * min(1.0, HUGE / data.n_records), 2)
    return ratio if ratio >= LEAST_DROPOUT else 0.0


def _names(data: RecordSurvey) -> str:
    names = data.outputs[0].names
    if not names or len(data.outputs) > 1:
        return ""
    shown = listed([f"{i} {quoted(name)}" for i, name in enumerate(names)])
    return f"# Classes: {' '.join(shown.splitlines())}.\n"


def _testing(data: RecordSurvey, steps: int) -> str:
    if not data.test_url:
        said = "# There is no test set, so it is unknown how good the net is on new records.\n"
        return said if data.features else f"{said}# To make one, see singa-dask convert --split.\n"
    said = f"# Test every so many steps, on all records of the test set.\ntest_freq: {max(1, steps // 5)}\n"
    if data.n_test > MAX_TESTED:
        said = f"# Test only at the end: there are many test records.\ntest_freq: {steps}\ntest_after: {steps}\n"
    if not data.has_classes:
        return f"{said}# Metrics of tests in addition to the loss.\nmetrics: [rmse, mae, r2]\n{_baseline(data)}"
    if len(data.outputs) > 1:
        return said
    if roc_auc := data.outputs[0].roc_auc:
        said += f"# Metrics in which all classes count equally; {roc_auc} says how well records are ranked.\n"
        return f"{said}metrics: [balanced_accuracy, f1_macro, {roc_auc}]\n{_baseline(data)}"
    said += "# Metrics in which all classes count equally.\nmetrics: [balanced_accuracy, f1_macro]\n"
    return f"{said}{_baseline(data)}"


def _baseline(data: RecordSurvey) -> str:
    """Return the key with the test metrics of the linear model; empty if not judged on test records."""
    known, output = data.baseline, data.outputs[0]
    if not known or not known.constants or len(data.outputs) > 1 or data.is_about:
        return ""
    metrics = {"accuracy" if data.has_classes else "rmse": known.score}
    metrics |= {} if known.roc_auc is None else {output.roc_auc: known.roc_auc}
    shown = ", ".join(f"{name}: {value:.4g}" for name, value in metrics.items())
    said = "# A linear model achieves this on the test records; a run compares its last test with it."
    return f"{said}\nbaseline: {{{shown}, records: {data.n_test}}}\n"


def _inputs(data: RecordSurvey, batch: int) -> str:
    if not data.test_url:
        return _input(data, data.url, batch)
    size = _large_batch(data) if data.values == "columns" and data.n_records > HUGE else TEST_BATCH
    test = _input(data, data.test_url, _for_groups(min(size, data.n_test)), "test")
    said = [line for line in test.splitlines(keepends=True) if not line.strip().startswith("#")]
    return _input(data, data.url, batch, "train") + "".join(said)


def _input(data: RecordSurvey, url: str, batch: int, phase: str = "") -> str:
    lines = [
        "# URL or path of the records; a path starts in the directory where the job is started.",
        f"path: {as_yaml(url)}",
        f"backend: {data.backend}",
        *_reading(data),
        "# Shape of one record: channels, height, width." if data.is_image else "# Shape of one record.",
        f"shape: {list(data.shape)}",
        *_split(data, phase),
        "# Records a step.",
        f"batchsize: {batch}",
        *_scaling(data),
    ]
    if phase != "test":
        is_large = 4 * data.n_records * math.prod(data.shape) > MAX_SHUFFLED
        if is_large and data.values == "columns":
            said = "# In each epoch, read blocks in a new order. The records of this many blocks are mixed in memory."
            window = max(1, min(WINDOW, WINDOW_BYTES // max(data.group_bytes, 1)))
            lines += [said, "shuffle: block", f"window: {window}"]
        else:
            lines += ["# Read the records in a new order in each epoch.", "shuffle: full"]
    kind = "CSVInput" if data.backend in backends_holding("text") else "RecordInput"
    has_one_label = data.has_classes and len(data.outputs) == 1
    anchor = phase or "train"
    include = [f"include: [{phase}]"] if phase else []
    first = ["# The training net uses this layer; the test net uses the next layer.", *include] if phase else []
    conf = ["store_conf:" if has_one_label else f"store_conf: &{anchor}", *(f"  {line}" for line in lines)]
    layers = layer("data", kind, "", *first, *conf)
    if has_one_label:
        return layers
    include.append(f"store_conf: *{anchor}")
    if not data.has_classes:
        return layers + layer("target", "TargetInput", "", *include)
    columns = [f"label_conf: {{column: {json.dumps(each.name, ensure_ascii=False)}}}" for each in data.outputs]
    return layers + "".join(layer(f"label{i}", "LabelInput", "", *include, c) for i, c in enumerate(columns, 1))


def _split(data: RecordSurvey, phase: str) -> list[str]:
    said = "# The records to train on. The test net reads all other records of this store."
    return [said, f"split: {json.dumps({'part': phase, **data.rule})}"] if data.rule else []


def _reading(data: RecordSurvey) -> list[str]:
    lines = []
    if data.backend == "arrow" and data.form in backends_holding("images"):
        lines += ["# Copies of the pictures, scaled to the shape of a record."]
    if "resize" in data.reading:
        lines += [
            "# Height and width that pictures are scaled to. A larger size shows more, and takes longer.",
            "# To decode pictures once and not in each epoch, convert.",
        ]
    if data.features and data.reading.keys() & {"label", "target"}:
        what = "its class" if data.has_classes else "the number to predict"
        lines += [f"# Columns of the table: the features, and the column with {what}."]
    if data.left_out:
        lines += [f"# Left out: {data.left_out}."]
    if data.measure:
        tokens = data.measure.tokens
        hint = " For languages without blanks between words: tokens: characters." if tokens == "words" else ""
        lines += [
            f"# The first {tokens} of a text, in lower case, numbered by their frequency in the training data;",
            f"# 0 is an unknown token, and -1 is padding after the end of a text.{hint}",
        ]
    if "lags" in data.reading:
        lines += [
            "# Earlier values of a time series: predict adds these columns to records that lack them.",
            '# With "gaps": "error", records with gaps in their dates are an error, not only a warning.',
        ]
    if "layout" in data.reading:
        lines += ["# The store has height, width, channels."]
    return lines + [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in data.reading.items()]


def _scaling(data: RecordSurvey) -> list[str]:
    if data.values == "bytes":
        return ["# Values are divided by this, so that they are in 0..1.", "std_value: 255"]
    if data.values == "any":
        return [
            "# Mean and standard deviation: mean_value is subtracted from each value, then std_value divides it.",
            f"mean_value: {data.mean:.6g}",
            f"std_value: {data.std:.6g}",
        ]
    if data.values == "columns" and len(data.shape) == 1:
        return [
            "# Each value is centred by its mean and divided by its standard deviation in the training data.",
            "# Columns of 0 and 1 stay as they are.",
            "standardise: true",
        ]
    return []


def _perceptron(data: RecordSurvey) -> str:
    if len(data.outputs) == 1 or data.has_classes:
        layers, source = _hidden(data, "")
        return layers + _heads(data, source)
    said = "    # Each predicted number has its own layers, because scales and gradients differ.\n"
    hidden = [_hidden(data, f"_{i}") for i in range(1, len(data.outputs) + 1)]
    return said + "".join(layers for layers, _ in hidden) + _heads(data, hidden[0][1].removesuffix("_1"))


def _hidden(data: RecordSurvey, suffix: str) -> tuple[str, str]:
    """Return the hidden layers, and the name of the last one."""
    layers, source, ratio = "", "data", _dropout_of(data)
    for i, n in enumerate(hidden_of(data), 1):
        layers += scores(f"fc{i}{suffix}", source, n) + layer(f"relu{i}{suffix}", "ReLU", f"fc{i}{suffix}")
        source = f"relu{i}{suffix}"
        if ratio:
            said = "Sets this share of the values to zero in training, against overfitting." if i == 1 else ""
            layers += layer(
                f"drop{i}{suffix}", "Dropout", source, f"dropout_conf: {{dropout_ratio: {ratio}}}", said=said
            )
            source = f"drop{i}{suffix}"
    return layers, source


def _convnet(data: RecordSurvey) -> str:
    layers, source, (height, width) = "", "data", data.shape[1:]
    side, i, shift = min(height, width), 0, round(SHIFT * min(height, width))
    if height == width:
        said = f"Shifts pictures by up to {shift} pixels. mirror: true is for pictures without left and right."
        crop = f"rgbimage_conf: {{pad: {shift}, cropsize: {height}, mirror: false}}"
        layers += layer("shift", "ImagePreprocess", source, crop, said=said)
        source = "shift"
    while side // 2 >= MIN_POOLED and i < len(FILTERS):
        i, side = i + 1, side // 2
        filters = f"convolution_conf: {{num_filters: {FILTERS[i - 1]}, kernel: 3, stride: 1, pad: 1}}"
        layers += layer(f"conv{i}", "Convolution", source, filters)
        layers += layer(f"norm{i}", "BatchNorm", f"conv{i}")
        layers += layer(f"relu{i}", "ReLU", f"norm{i}")
        layers += layer(f"pool{i}", "Pooling", f"relu{i}", "pooling_conf: {pool: MAX, kernel: 2, stride: 2}")
        source = f"pool{i}"
    layers += scores("fc", source, CONVNET_UNITS)
    source = "fc"
    if training_of(data, "convnet")[0] >= MIN_NORMALISED:
        layers += layer("norm", "BatchNorm", "fc")
        source = "norm"
    layers += layer("relu", "ReLU", source)
    said = "Sets this share of the values to zero in training, against overfitting."
    ratio = f"dropout_conf: {{dropout_ratio: {CONVNET_DROPOUT}}}"
    layers += layer("drop", "Dropout", "relu", ratio, said=said)
    return layers + _heads(data, "drop")


def _word_rnn(data: RecordSurvey) -> str:
    (text,) = data.reading["texts"].values()
    token = text.get("tokens", "words").removesuffix("s")
    embedding = f"embedding_conf: {{vocab_size: {text['vocab_size']}, feature_dim: {WORD_UNITS}}}"
    sources, units = "embedding, mask", f"dim_hidden: {WORD_UNITS}"
    layers = layer("mask", "PaddingMask", "data", said="Marks padding, which other layers ignore.")
    layers += layer("embedding", "Embedding", "data", embedding, said=f"A vector for each {token}.")
    layers += layer("forth", "GRU", sources, f"gru_conf: {{{units}}}", said=f"From the first {token} to the last.")
    layers += layer("back", "GRU", sources, f"gru_conf: {{{units}, reverse: true}}", said="From the last to the first.")
    layers += layer("both", "Concate", "forth, back", "concate_conf: {concate_dim: 1}")
    said = f"The largest value of each unit at any {token}. From here on there is one time step."
    layers += layer("pool", "TimePooling", "both, mask", ONE_STEP, "timepooling_conf: {pool: MAX}", said=said)
    said = "Sets half of the values to zero in training, against overfitting."
    layers += layer("drop", "Dropout", "pool", ONE_STEP, "dropout_conf: {dropout_ratio: 0.5}", said=said)
    return layers + _heads(data, "drop", ONE_STEP)


def _heads(data: RecordSurvey, source: str, *lines: str) -> str:
    """Return the layers that compute scores or predictions, and the losses.

    ``lines`` are added to each layer that computes scores of classes.
    """
    several = len(data.outputs) > 1
    if not data.has_classes:
        return _predictions(data, source)
    layers = ""
    for i, each in enumerate(data.outputs, 1):
        number, label = (str(i), f"label{i}") if several else ("", "data")
        layers += scores(f"scores{number}", source, len(each.counts), *lines, said="A score for each class.")
        said = f"Cross-entropy of the softmax, and accuracy.{_class_weights(each)}"
        layers += layer(f"loss{number}", "SoftmaxLoss", f"scores{number}, {label}", *lines, said=said)
    return layers


def _class_weights(label: OutputSurvey) -> str:
    """Return a comment on class weights if some classes are rare."""
    if not label.has_rare:
        return ""
    weights = ", ".join(f"{max(label.counts) / n:.3g}" for n in label.counts)
    return f" To find more records of rare classes: softmaxloss_conf: {{class_weights: [{weights}]}}"


def _predictions(data: RecordSurvey, source: str) -> str:
    layers, several = "", len(data.outputs) > 1
    names = [f"prediction_{i}" if several else "prediction" for i in range(1, len(data.outputs) + 1)]
    for name, each in zip(names, data.outputs, strict=True):
        start, scale, decay = f"{each.mean:.6g}", f"{each.std:.6g}", f"{1 / each.std:.6g}"
        weight = f"lr_scale: {scale}, wd_scale: {decay}, init: {{type: Constant, value: 0}}"
        bias = f"lr_scale: {scale}, wd_scale: 0, init: {{type: Constant, value: {start}}}"
        params = ["param:", f"  - {{name: {name}_w, {weight}}}", f"  - {{name: {name}_b, {bias}}}"]
        said = "it starts at the mean, and the learning rate is scaled to the standard deviation."
        column, before = " ".join(each.name.split()), source + name.removeprefix("prediction")
        layers += scores(name, before, 1, *params, said=f"{column}: {said}")
    if several:
        layers += layer("prediction", "Concate", ", ".join(names), "concate_conf: {concate_dim: 1}")
    guess = sum(each.std**2 for each in data.outputs)
    said = f"Mean of the squared difference. Always predicting the mean has {guess:.6g}."
    return layers + layer("loss", "EuclideanLoss", "prediction, target", said=said)
