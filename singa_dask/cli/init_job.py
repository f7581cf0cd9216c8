"""The job files that ``init`` writes: a perceptron, a convolutional net, or a recurrent net of characters."""

from __future__ import annotations

import json
import math
import posixpath
import re
import shlex
from typing import Any

from singa_dask.cli.init_data import Records, Text
from singa_dask.data.stores.store import backends_holding

__all__ = ["NETS", "default_net", "job_name", "write_job"]

NETS = ("mlp", "convnet", "char-rnn")

BATCH, TEST_BATCH = 64, 100
# times that each record is read, and least number of steps
EPOCHS, MIN_STEPS = {"mlp": 20, "convnet": 10}, {"mlp": 1000, "convnet": 500}
HIDDEN = (256, 128)
FILTERS = (32, 64, 64, 128, 128)
# the last pooling leaves this height or width at least
MIN_POOLED = 4
TEXT_BATCH, UNROLL, UNITS, TEXT_EPOCHS, TEXT_STEPS = 50, 50, 256, 10, (500, 3000)
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
    name = job_name(data.url, net)
    body = _text_job(data, name) if isinstance(data, Text) else _records_job(data, name, net)
    return f"# Written by {command}\n#\n{body}"


# -- texts ----------------------------------------------------------------------------------------------


def _text_job(data: Text, name: str) -> str:
    batch = max(1, min(TEXT_BATCH, data.n_characters // (2 * (UNROLL + 1))))
    epoch = max(1, data.n_characters // (batch * UNROLL))
    steps = min(max(TEXT_EPOCHS * epoch, TEXT_STEPS[0]), TEXT_STEPS[1])
    guess = math.log(data.n_distinct)
    return f"""\
# A recurrent net that learns to tell the next character of a text.
# It has {data.n_characters} characters, {data.n_distinct} different ones.
# Train it, and let it write:
#
#   singa-dask run JOB --run-dir runs/{name}
#   singa-dask sample JOB --init-from runs/{name} --length 400

name: {name}
seed: 1
# Once through the text is {epoch} steps.
train_steps: {steps}
# A line of progress every so many steps. The loss is the mean of a character; guesses have {guess:.2f}.
# There is no test set: these are characters that the net learns from.
disp_freq: {max(1, steps // 20)}
checkpoint_freq: {max(1, steps // 4)}
train_one_batch: {{alg: BPTT}}

updater:
  type: RMSProp
  rmsprop_conf: {{rho: 0.95}}
  # Each value of a gradient is cut off at these.
  clip_low: -5
  clip_high: 5
  learning_rate: {{type: Fixed, base_lr: 0.002}}

neuralnet:
  # Characters that the net reads in a batch, from each place.
  unroll_len: {UNROLL}
  layer:
    - name: data
      type: CharRNN
      unroll_len: 1
      char_rnn_conf:
        path: {_quoted(data.url)}
        # Places in the text that are read at the same time.
        batchsize: {batch}
        unroll_len: {UNROLL}
    - name: onehot
      type: OneHot
      srclayers: [data]
      unroll_conn_type: OneToAll
      # Different characters of the text.
      onehot_conf: {{vocab_size: {data.n_distinct}}}
    # At each time step the character of the next one.
    - name: label
      type: RNNLabel
      srclayers: [data]
      unroll_conn_type: OneToAll
    # More units learn more, and take longer.
    - name: gru
      type: GRU
      srclayers: [onehot]
      gru_conf: {{dim_hidden: {UNITS}, carry_state: true}}
    - name: scores
      type: InnerProduct
      srclayers: [gru]
      innerproduct_conf: {{num_output: {data.n_distinct}}}
    - name: loss
      type: SoftmaxLoss
      srclayers: [scores, label]
"""


# -- records --------------------------------------------------------------------------------------------


def _records_job(data: Records, name: str, net: str) -> str:
    batch = max(1, min(BATCH, data.n_records // 10))
    epoch = max(1, data.n_records // batch)
    steps = max(EPOCHS[net] * epoch, MIN_STEPS[net])
    layers = _convnet(data) if net == "convnet" else _perceptron(data)
    kind = "pictures" if data.is_image else "records"
    shape = " x ".join(map(str, data.shape))
    what = "convolutional net" if net == "convnet" else "multi-layer perceptron"
    learned = f"in {data.n_classes} classes" if data.n_classes else f"and a number to predict: {_target(data)}"
    then = f"name the classes of new {kind}" if data.n_classes else f"predict {_target(data)} of new {kind}"
    return f"""\
# A {what} for {data.n_records} {kind} of {shape} values {learned}.
{_names(data)}# Train it, and {then}:
#
#   singa-dask run JOB --run-dir runs/{name}
#   singa-dask predict JOB --init-from runs/{name} --data NEW

name: {name}
# Every random number follows from it: initial values, order of records.
seed: 1
# Batches to train on. Each record is read once in {epoch} of them.
train_steps: {steps}
# A line of progress every so many steps.
disp_freq: {max(1, steps // 20)}
{_testing(data, steps)}checkpoint_freq: {max(1, steps // 4)}
train_one_batch: {{alg: BP}}

updater:
  # Learns well without much choice; a lower base_lr learns more slowly, and often a little better.
  type: Adam
  learning_rate: {{type: Fixed, base_lr: 0.001}}

neuralnet:
  layer:
{_inputs(data, batch)}{layers}{_loss(data)}"""


def _target(data: Records) -> str:
    return str(data.reading["target"][0])


def _loss(data: Records) -> str:
    if not data.n_classes:
        return f"""\
    # Mean of the squared difference. Guessing the mean each time has {data.target_std**2:.6g}.
    - name: loss
      type: EuclideanLoss
      srclayers: [prediction, target]
"""
    return """\
    # Cross-entropy of the softmax, and accuracy.
    - name: loss
      type: SoftmaxLoss
      srclayers: [scores, data]
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
        source = f"{'table' if 'features' in data.reading else data.backend} {_quoted(data.url)}"
        return (
            "# There is no test set, so nobody knows how well the net does on records that it has not learned.\n"
            "# To make one, split the records, and run init again on what that writes:\n"
            f"#   singa-dask convert {source} '{_split_name(data)}' --split train=0.9,test=0.1 --shuffle 1"
            f"{_convert_options(data)}\n"
        )
    return (
        "# Test every so many steps, on so many batches: all records of the test set.\n"
        f"test_freq: {max(1, steps // 5)}\n"
        f"test_steps: {math.ceil(data.n_test / _test_batch(data.n_test))}\n"
    )


def _test_batch(n: int) -> int:
    """Return a batch size for ``n`` records, if possible one that divides them."""
    return next((size for size in range(TEST_BATCH, TEST_BATCH // 4, -1) if n % size == 0), min(TEST_BATCH, n))


def _split_name(data: Records) -> str:
    stem = posixpath.splitext(posixpath.basename(data.url.replace("*", "")))[0].strip("-_")
    return f"{stem or 'data'}-{{split}}.arrow"


def _convert_options(data: Records) -> str:
    if "features" in data.reading:
        return "".join(f" --option {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in data.reading.items())
    options = ""
    if "resize" in data.reading:
        height, width = data.reading["resize"]
        options = f" --resize {height}x{width} --channels {data.reading['channels']}"
    return options + (f" --separator '{data.reading['separator']}'" if "separator" in data.reading else "")


def _inputs(data: Records, batch: int) -> str:
    if not data.test_url:
        return _input(data, data.url, batch, "full", "")
    train = _input(data, data.url, batch, "full", "      # The training net reads this one, the test net the next.\n"
                   "      include: [train]\n")  # fmt: skip
    test = _input(data, data.test_url, _test_batch(data.n_test), "", "      include: [test]\n")
    return train + "\n".join(line for line in test.split("\n") if not line.strip().startswith("#"))


def _input(data: Records, url: str, batch: int, shuffle: str, phase: str) -> str:
    kind = "CSVInput" if data.backend in backends_holding("text") else "RecordInput"
    lines = [
        "# URL or path of the records; a path starts in the directory where the job is started.",
        f"path: {_quoted(url)}",
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
    if data.n_classes:
        return f"    - name: data\n      type: {kind}\n{phase}      store_conf:\n{inside}"
    anchor, only = "test" if "[test]" in phase else "train", "".join(phase.splitlines(keepends=True)[-1:])
    return (
        f"    - name: data\n      type: {kind}\n{phase}      store_conf: &{anchor}\n{inside}"
        f"    - name: target\n      type: TargetInput\n{only}      store_conf: *{anchor}\n"
    )


def _reading(data: Records) -> list[str]:
    lines = []
    if "resize" in data.reading:
        lines += ["# Height and width that pictures are scaled to. To decode them once and not in each epoch, convert."]
    if "features" in data.reading:
        what = "its class" if data.n_classes else "the number to predict"
        lines += [f"# Columns of the table that a record consists of, and the one with {what}."]
    if data.left_out:
        lines += [f"# Left out: {data.left_out}."]
    if "layout" in data.reading:
        lines += ["# The store has height, width, channels."]
    return lines + [f"{key}: {json.dumps(value)}" for key, value in data.reading.items()]


def _scaling(data: Records) -> list[str]:
    if data.values == "bytes":
        return ["# Values are divided by this, so that they are in 0..1.", "std_value: 255"]
    if data.values == "any":
        return [
            "# Subtracted from each value, which is then divided by std_value: their mean and standard deviation.",
            f"mean_value: {data.mean:.6g}",
            f"std_value: {data.std:.6g}",
        ]
    return []


def _perceptron(data: Records) -> str:
    layers, source = "", "data"
    if data.values == "columns" and len(data.shape) == 1:
        source = "scaled"
        layers = """\
    # Gives each column mean 0 and variance 1: they have ranges of their own.
    - name: scaled
      type: BatchNorm
      srclayers: [data]
"""
    for i, n in enumerate(HIDDEN, 1):
        layers += f"""\
    - name: fc{i}
      type: InnerProduct
      srclayers: [{source}]
      innerproduct_conf: {{num_output: {n}}}
    - name: relu{i}
      type: ReLU
      srclayers: [fc{i}]
"""
        source = f"relu{i}"
    return layers + _scores(data, source)


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
    return layers + _scores(data, "drop")


def _scores(data: Records, source: str) -> str:
    if not data.n_classes:
        start, scale = f"{data.target_mean:.6g}", f"{data.target_std:.6g}"
        return f"""\
    # The number: it starts at the mean, and the learning rate is scaled to the standard deviation.
    - name: prediction
      type: InnerProduct
      srclayers: [{source}]
      innerproduct_conf: {{num_output: 1}}
      param:
        - {{name: prediction_w, lr_scale: {scale}, init: {{type: Constant, value: 0}}}}
        - {{name: prediction_b, lr_scale: {scale}, init: {{type: Constant, value: {start}}}}}
"""
    return f"""\
    # A score for each class.
    - name: scores
      type: InnerProduct
      srclayers: [{source}]
      innerproduct_conf: {{num_output: {data.n_classes}}}
"""


def _quoted(text: str) -> Any:
    """Write a text for YAML, in quotes where it needs them."""
    return text if re.fullmatch(r"[A-Za-z_./][\w./-]*", text) else json.dumps(text, ensure_ascii=False)
