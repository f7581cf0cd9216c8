"""Sampling: write text with a trained net."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, TextIO

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.vocabulary import encode_text
from singa_dask.errors import ConfigError
from singa_dask.layers import Layer
from singa_dask.layers.embedding import PositionalEmbedding
from singa_dask.layers.text import CharRNNOutput, RNNDummy
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.inference.net import fill
from singa_dask.runtime.planning.devices import device_of_part, explain_memory_errors
from singa_dask.runtime.planning.nets import build_net, find_ops
from singa_dask.runtime.planning.resources import limit_process, limit_thread

__all__ = ["sample"]


def sample(
    job: JobConf, init_from: Sequence[str], length: int, seed_text: str = "", file: TextIO | None = None
) -> None:
    """Write text with a net, one character for each row of a batch.

    Parameters
    ----------
    job : JobConf
        From `sampling_job`.
    init_from : sequence of str
        URLs of checkpoints, instead of the job's ``checkpoint_path``; later ones win.
    length : int
        Number of batches.
    seed_text : str
        Text that the net reads first; it is not written. If empty, the net starts as its RNNDummy says.
    file : text file, optional
        Output; standard output by default.

    Raises
    ------
    ConfigError
        The net cannot be built, or has no RNNDummy to take the seed text.
    CheckpointError
        The checkpoints lack params.
    DataError
        A character is not in the vocabulary.
    """
    ops = find_ops(job, device_of_part(job, 0))
    net = build_net(job, Phase.TEST, ops)
    net.context.frozen = True
    with ExitStack() as stack:
        stack.enter_context(explain_memory_errors(lambda: [net]))
        stack.enter_context(ops.activate())
        net.allocate()
        fill(net, InitialValues(job, init_from))
        for layer in net.layers:
            if isinstance(layer, CharRNNOutput):
                layer.file = file
        # a row at a time is too little work for threads
        stack.enter_context(limit_process(1))
        stack.enter_context(limit_thread(1))
        stack.enter_context(np.errstate(over="ignore", invalid="ignore"))
        stack.callback(net.close)
        _write(net, length, seed_text)


def _write(net: NeuralNet, length: int, seed_text: str) -> None:
    writer, last = _Writer(net), None
    if seed_text:
        if writer.start is None:
            raise ConfigError("the net has no RNNDummy to take the seed text.")
        vocabulary = next(layer.vocabulary for layer in net.layers if isinstance(layer, CharRNNOutput))
        *before, last = encode_text(seed_text, vocabulary, "seed text").tolist()
        for number in before:
            writer.read(number)
    for k in range(length):
        writer.write(None if k else last)


class _Writer:
    """A net that reads a character a batch, and writes the next one.

    A net with a `PositionalEmbedding` has a window: so many characters it can look back on. Where that is full the
    net starts anew with the second half of it, which it reads again.

    Parameters
    ----------
    net : NeuralNet
    """

    def __init__(self, net: NeuralNet) -> None:
        self.net = net
        self.start = next((layer for layer in net.layers if isinstance(layer, RNNDummy)), None)
        self.reading = [layer for layer in net.layers if not layer.traits.is_output]
        windows = [layer.max_length for layer in net.layers if isinstance(layer, PositionalEmbedding)]
        self.window = min(windows, default=0)
        self.recent: deque[Array] = deque(maxlen=self.window // 2)
        self.n_read = 0

    def read(self, given: Any = None) -> None:
        """Read a character: the one that was written last, unless it is given."""
        self._run(self.reading, given)

    def write(self, given: Any = None) -> None:
        """Read a character, and write the next one."""
        self._run(self.net.layers, given)

    def _run(self, layers: Sequence[Layer], given: Any) -> None:
        start = self.start
        if start is not None and self.n_read == self.window > 0:
            self.net.context.states.clear()
            self.n_read = 0
            for values in list(self.recent):
                self.read(values)
        if start is not None and given is not None:
            start.feed(given)
        for layer in layers:
            self.net.forward(layer, Phase.TEST | Phase.FORWARD)
        if start is not None and self.window:
            self.recent.append(np.array(self.net.ops.to_host(start.features[0].data)))
            self.n_read += 1
