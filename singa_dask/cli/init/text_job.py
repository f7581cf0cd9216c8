"""The job for a text file: a recurrent net of characters."""

from __future__ import annotations

import math

from singa_dask.cli.init.layer_text import as_yaml, layer, scores
from singa_dask.survey.results import TextSurvey

# settings for a text file
TEXT_BATCH, UNROLL, UNITS, TEXT_EPOCHS, TEXT_STEPS = 50, 50, 256, 10, (500, 3000)


def text_job(data: TextSurvey, next_steps: str) -> str:
    """Return a job for a text file, without the first lines. ``next_steps`` has commands and name."""
    batch = max(1, min(TEXT_BATCH, data.n_characters // (2 * (UNROLL + 1))))
    epoch = max(1, data.n_characters // (batch * UNROLL))
    steps = min(max(TEXT_EPOCHS * epoch, TEXT_STEPS[0]), TEXT_STEPS[1])
    guess = math.log(data.n_distinct)
    reading = [
        f"path: {as_yaml(data.source)}",
        "# Places in the text that are read at the same time.",
        f"batchsize: {batch}",
    ]
    conf = [f"  {line}" for line in (*reading, f"unroll_len: {UNROLL}")]
    one_hot = ["# Different characters of the text.", f"onehot_conf: {{vocab_size: {data.n_distinct}}}"]
    each, gru = "unroll_conn_type: OneToAll", f"gru_conf: {{dim_hidden: {UNITS}, carry_state: true}}"
    layers = layer("data", "CharRNN", "", "unroll_len: 1", "char_rnn_conf:", *conf)
    layers += layer("onehot", "OneHot", "data", each, *one_hot)
    layers += layer("label", "RNNLabel", "data", each, said="At each time step the character of the next one.")
    layers += layer("gru", "GRU", "onehot", gru, said="More units learn more, and take longer.")
    layers += scores("scores", "gru", data.n_distinct) + layer("loss", "SoftmaxLoss", "scores, label")
    return f"""\
# A recurrent net that learns to tell the next character of a text.
# It has {data.n_characters} characters, {data.n_distinct} different ones.
# Train it, and let it write:
{next_steps}\
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
  # Each value of a gradient is clipped to this range.
  clip_low: -5
  clip_high: 5
  learning_rate: {{type: Fixed, base_lr: 0.002}}

neuralnet:
  # Characters that the net reads in a batch, from each place.
  unroll_len: {UNROLL}
  layer:
{layers}"""
