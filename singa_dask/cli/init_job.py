"""The job files that ``init`` writes: a perceptron, a convolutional net, or a recurrent net of characters."""

from __future__ import annotations

import json
import math
import posixpath
import re

from singa_dask.cli.init_data import Records, Text
from singa_dask.cli.init_text import quoted, text_job
from singa_dask.data.stores.store import backends_holding

__all__ = ["NETS", "default_net", "describe_outputs", "hidden_of", "job_name", "training_of", "write_job"]

NETS = ("mlp", "convnet", "char-rnn")

# of few records, and of more than MANY
BATCH, LARGE_BATCH, MANY, TEST_BATCH = 32, 64, 5000, 100
# times that each record is read, at least and at most, within these numbers of steps
EPOCHS, STEPS = (20, 100), (500, 5000)
CONVNET_EPOCHS = 10
HIDDEN, HIDDEN_OF_MANY = (64, 64), (256, 128)
# features from which on the hidden layers are those of many
WIDE = 100
RATE, WEIGHT_DECAY = 0.001, 0.3
FILTERS = (32, 64, 64, 128, 128)
# the last pooling leaves this height or width at least
MIN_POOLED = 4
# class names that a comment lists
MAX_NAMES = 20


def default_net(data: Records | Text) -> str:
    """Return the kind of net for data."""
    if isinstance(data, Text):
        return "char-rnn"
    return "convnet" if data.is_image else "mlp"


def job_name(url: str, net: str) -> str:
    """Return a name for a job, made of that of its data: of the folder for ``digits/train.arrow``."""
    parts = [re.sub(r"[^A-Za-z0-9]+", "-", part.split(".")[0]).strip("-") for part in url.split("/")]
    telling = [part for part in parts if part and not re.match(r"(?i)train|data(-batch)?$", part)]
    return f"{telling[-1].lower() if telling else 'my'}-{net}"


def write_job(data: Records | Text, net: str, command: str) -> str:
    """Return a job file with comments.

    Parameters
    ----------
    data : Records or Text
    net : str
        One of NETS, that fits the data.
    command : str
        What the first line says has written it.
    """
    name = job_name(data.url if isinstance(data, Text) else data.source, net)
    body = text_job(data, name) if isinstance(data, Text) else _records_job(data, name, net)
    return f"# Written by {command}\n#\n{body}"


# -- records --------------------------------------------------------------------------------------------


def _records_job(data: Records, name: str, net: str) -> str:
    batch, steps = training_of(data, net)
    epoch = max(1, data.n_records // batch)
    layers = _convnet(data) if net == "convnet" else _perceptron(data)
    kind = "pictures" if data.is_image else "records"
    shape = " x ".join(map(str, data.shape))
    what = "convolutional net" if net == "convnet" else "multi-layer perceptron"
    then = f"name the classes of new {kind}" if data.has_classes else f"predict {_targets(data)} of new {kind}"
    return f"""\
# A {what} for {data.n_records} {kind} of {shape} values {describe_outputs(data)}.
{_names(data)}# Train it, and {then}:
#
#   singa-dask run JOB --run-dir runs/{name}
#   singa-dask predict JOB --init-from runs/{name} --data NEW

name: {name}
# Every random number follows from it: initial values, order of records.
seed: {data.seed}
# Batches to train on. Each record is read once in {epoch} of them.
train_steps: {steps}
# A line of progress every so many steps.
disp_freq: {max(1, steps // 20)}
{_testing(data, steps)}checkpoint_freq: {max(1, steps // 4)}
train_one_batch: {{alg: BP}}

{_updater(data, net, steps)}
neuralnet:
  layer:
{_inputs(data, batch)}{layers}{_heads(data, net)}"""


def training_of(data: Records, net: str) -> tuple[int, int]:
    """Return records in a batch, and steps of training."""
    size = BATCH if net == "mlp" and data.n_records <= MANY else LARGE_BATCH
    batch = max(1, min(size, data.n_records // 10))
    epoch = max(1, data.n_records // batch)
    if net == "convnet":
        return batch, max(CONVNET_EPOCHS * epoch, STEPS[0])
    return batch, max(min(EPOCHS[1] * epoch, STEPS[1]), EPOCHS[0] * epoch, STEPS[0])


def hidden_of(data: Records) -> tuple[int, ...]:
    """Return the numbers of units of a perceptron."""
    return HIDDEN if math.prod(data.shape) < WIDE else HIDDEN_OF_MANY


def describe_outputs(data: Records) -> str:
    """Return what a net learns of records."""
    if not data.has_classes:
        return f"and {_targets(data)} to predict"
    counts = [str(len(each.counts)) for each in data.outputs]
    return (
        f"in {counts[0]} classes"
        if len(counts) == 1
        else f"with {len(counts)} labels of {' and '.join(counts)} classes"
    )


def _targets(data: Records) -> str:
    return " and ".join(each.name for each in data.outputs)


def _updater(data: Records, net: str, steps: int) -> str:
    if net == "convnet":
        return """\
updater:
  # Learns well without much choice; a lower base_lr learns more slowly, and often a little better.
  type: Adam
  learning_rate: {type: Fixed, base_lr: 0.001}
"""
    return f"""\
updater:
  # Adam with decoupled weight decay: more of it helps against learning by heart.
  type: AdamW
  weight_decay: {WEIGHT_DECAY}
  # Falls to zero over the training: change_freq are the steps of it.
  learning_rate: {{type: Cosine, base_lr: {RATE}, cosine_conf: {{change_freq: {steps}}}}}
"""


def _names(data: Records) -> str:
    if not data.class_names:
        return ""
    shown = ", ".join(f"{i} {name}" for i, name in enumerate(data.class_names[:MAX_NAMES]))
    more = f" and {len(data.class_names) - MAX_NAMES} more" if len(data.class_names) > MAX_NAMES else ""
    lines = f"Classes: {shown}{more}.".splitlines()
    return f"# {' '.join(lines)}\n"


def _testing(data: Records, steps: int) -> str:
    if not data.test_url:
        if data.features:
            return "# There is no test set, so nobody knows how well the net does on records that it has not learned.\n"
        return (
            "# There is no test set, so nobody knows how well the net does on records that it has not learned.\n"
            "# To make one, split the records, and run init again on what that writes:\n"
            f"#   singa-dask convert {data.backend} {quoted(data.url)} '{_split_name(data)}'"
            f" --split train=0.9,test=0.1 --shuffle 1{_convert_options(data)}\n"
        )
    said = f"# Test every so many steps, on all records of the test set.\ntest_freq: {max(1, steps // 5)}\n"
    if len(data.outputs) > 1 and data.has_classes:
        return said
    if not data.has_classes:
        return f"{said}# What tests compute beside the loss.\nmetrics: [mae, r2]\n"
    return f"{said}# Of all classes alike, beside loss and accuracy.\nmetrics: [balanced_accuracy, f1_macro]\n"


def _split_name(data: Records) -> str:
    stem = posixpath.splitext(posixpath.basename(data.url.replace("*", "")))[0].strip("-_")
    return f"{stem or 'data'}-{{split}}.arrow"


def _convert_options(data: Records) -> str:
    if "resize" not in data.reading:
        return ""
    height, width = data.reading["resize"]
    return f" --resize {height}x{width} --channels {data.reading['channels']}"


def _inputs(data: Records, batch: int) -> str:
    if not data.test_url:
        return _input(data, data.url, batch, "full", "")
    train = _input(data, data.url, batch, "full", "      # The training net reads this one, the test net the next.\n"
                   "      include: [train]\n")  # fmt: skip
    test = _input(data, data.test_url, min(TEST_BATCH, data.n_test), "", "      include: [test]\n")
    return train + "\n".join(line for line in test.split("\n") if not line.strip().startswith("#"))


def _input(data: Records, url: str, batch: int, shuffle: str, phase: str) -> str:
    kind = "CSVInput" if data.backend in backends_holding("text") else "RecordInput"
    lines = [
        "# URL or path of the records; a path starts in the directory where the job is started.",
        f"path: {quoted(url)}",
        f"backend: {data.backend}",
        *_reading(data),
        "# Shape of one record: channels, height, width." if data.is_image else "# Shape of one record.",
        f"shape: {list(data.shape)}",
        "# Records a step.",
        f"batchsize: {batch}",
        *_scaling(data),
    ]
    if shuffle:
        lines += ["# Read the records in a new order each time.", f"shuffle: {shuffle}"]
    inside = "".join(f"        {line}\n" for line in lines)
    if data.has_classes and len(data.outputs) == 1:
        return f"    - name: data\n      type: {kind}\n{phase}      store_conf:\n{inside}"
    anchor, only = "test" if "[test]" in phase else "train", "".join(phase.splitlines(keepends=True)[-1:])
    found = f"    - name: data\n      type: {kind}\n{phase}      store_conf: &{anchor}\n{inside}"
    if not data.has_classes:
        return f"{found}    - name: target\n      type: TargetInput\n{only}      store_conf: *{anchor}\n"
    for i, each in enumerate(data.outputs, 1):
        found += f"    - name: label{i}\n      type: LabelInput\n{only}      store_conf: *{anchor}\n"
        found += f"      label_conf: {{column: {json.dumps(each.name, ensure_ascii=False)}}}\n"
    return found


def _reading(data: Records) -> list[str]:
    lines = []
    if "resize" in data.reading:
        lines += ["# Height and width that pictures are scaled to. To decode them once and not in each epoch, convert."]
    if data.features and data.reading.keys() & {"label", "target"}:
        what = "its class" if data.has_classes else "the number to predict"
        lines += [f"# Columns of the table that a record consists of, and the one with {what}."]
    if data.left_out:
        lines += [f"# Left out: {data.left_out}."]
    if "layout" in data.reading:
        lines += ["# The store has height, width, channels."]
    return lines + [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in data.reading.items()]


def _scaling(data: Records) -> list[str]:
    if data.values == "bytes":
        return ["# Values are divided by this, so that they are in 0..1.", "std_value: 255"]
    if data.values == "any":
        return [
            "# Subtracted from each value, which is then divided by std_value: their mean and standard deviation.",
            f"mean_value: {data.mean:.6g}",
            f"std_value: {data.std:.6g}",
        ]
    if data.values == "columns" and len(data.shape) == 1:
        said = "# Each value is centred by its mean and divided by its standard deviation in the training data."
        return [said, "standardise: true"]
    return []


def _perceptron(data: Records) -> str:
    several = len(data.outputs) > 1 and not data.has_classes
    if not several:
        return _hidden(hidden_of(data), "")
    said = "    # Each number has layers of its own: their scales differ, and so do the gradients.\n"
    return said + "".join(_hidden(hidden_of(data), f"_{i}") for i in range(1, len(data.outputs) + 1))


def _hidden(sizes: tuple[int, ...], suffix: str) -> str:
    layers, source = "", "data"
    for i, n in enumerate(sizes, 1):
        layers += f"""\
    - name: fc{i}{suffix}
      type: InnerProduct
      srclayers: [{source}]
      innerproduct_conf: {{num_output: {n}}}
    - name: relu{i}{suffix}
      type: ReLU
      srclayers: [fc{i}{suffix}]
"""
        source = f"relu{i}{suffix}"
    return layers


def _convnet(data: Records) -> str:
    layers, source = "", "data"
    side, i = min(data.shape[1:]), 0
    while side // 2 >= MIN_POOLED and i < len(FILTERS):
        i, side = i + 1, side // 2
        layers += f"""\
    - name: conv{i}
      type: Convolution
      srclayers: [{source}]
      convolution_conf: {{num_filters: {FILTERS[i - 1]}, kernel: 3, stride: 1, pad: 1}}
    - name: norm{i}
      type: BatchNorm
      srclayers: [conv{i}]
    - name: relu{i}
      type: ReLU
      srclayers: [norm{i}]
    - name: pool{i}
      type: Pooling
      srclayers: [relu{i}]
      pooling_conf: {{pool: MAX, kernel: 2, stride: 2}}
"""
        source = f"pool{i}"
    layers += f"""\
    # Sets half of the values to zero in training, against learning by heart.
    - name: drop
      type: Dropout
      srclayers: [{source}]
      dropout_conf: {{dropout_ratio: 0.5}}
"""
    return layers


def _heads(data: Records, net: str) -> str:
    """Return the layers of scores or predictions, and the losses."""
    source = "drop" if net == "convnet" else f"relu{len(HIDDEN)}"
    if data.has_classes:
        several = len(data.outputs) > 1
        return "".join(
            _classes(len(each.counts), source, str(i) if several else "", f"label{i}" if several else "data")
            for i, each in enumerate(data.outputs, 1)
        )
    guess = sum(each.std**2 for each in data.outputs)
    return f"""\
{_predictions(data, source)}\
    # Mean of the squared difference. Always predicting the mean has {guess:.6g}.
    - name: loss
      type: EuclideanLoss
      srclayers: [prediction, target]
"""


def _classes(n: int, source: str, number: str, label: str) -> str:
    return f"""\
    # A score for each class.
    - name: scores{number}
      type: InnerProduct
      srclayers: [{source}]
      innerproduct_conf: {{num_output: {n}}}
    # Cross-entropy of the softmax, and accuracy.
    - name: loss{number}
      type: SoftmaxLoss
      srclayers: [scores{number}, {label}]
"""


def _predictions(data: Records, source: str) -> str:
    found, several = "", len(data.outputs) > 1
    suffixes = [f"_{i}" if several else "" for i in range(1, len(data.outputs) + 1)]
    for suffix, each in zip(suffixes, data.outputs, strict=True):
        start, scale, decay = f"{each.mean:.6g}", f"{each.std:.6g}", f"{1 / each.std:.6g}"
        found += f"""\
    # {" ".join(each.name.split())}: it starts at the mean, and the learning rate is scaled to the standard deviation.
    - name: prediction{suffix}
      type: InnerProduct
      srclayers: [{source}{suffix}]
      innerproduct_conf: {{num_output: 1}}
      param:
        - {{name: prediction{suffix}_w, lr_scale: {scale}, wd_scale: {decay}, init: {{type: Constant, value: 0}}}}
        - {{name: prediction{suffix}_b, lr_scale: {scale}, wd_scale: 0, init: {{type: Constant, value: {start}}}}}
"""
    if several:
        names = ", ".join(f"prediction{suffix}" for suffix in suffixes)
        joined = "concate_conf: {concate_dim: 1}"
        found += f"    - name: prediction\n      type: Concate\n      srclayers: [{names}]\n      {joined}\n"
    return found
