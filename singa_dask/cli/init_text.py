"""The job file of a recurrent net of characters, which ``init`` writes for a text."""

from __future__ import annotations

import json
import math
import re

from singa_dask.cli.init_data import Text

__all__ = ["quoted", "text_job"]

BATCH, UNROLL, UNITS, EPOCHS, STEPS = 50, 50, 256, 10, (500, 3000)


def text_job(data: Text, name: str) -> str:
    """Return a job file with comments."""
    batch = max(1, min(BATCH, data.n_characters // (2 * (UNROLL + 1))))
    epoch = max(1, data.n_characters // (batch * UNROLL))
    steps = min(max(EPOCHS * epoch, STEPS[0]), STEPS[1])
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
        path: {quoted(data.url)}
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


def quoted(text: str) -> str:
    """Write a text for YAML, in quotes where it needs them."""
    return text if re.fullmatch(r"[A-Za-z_./][\w./-]*", text) else json.dumps(text, ensure_ascii=False)
