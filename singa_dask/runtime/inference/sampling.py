"""Sampling: write text with a trained net."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TextIO

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.vocabulary import encode_text
from singa_dask.errors import ConfigError
from singa_dask.layers.text import CharRNNOutput, RNNDummy
from singa_dask.net import NeuralNet
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
    phase = Phase.TEST | Phase.FORWARD
    if seed_text:
        start = next((layer for layer in net.layers if isinstance(layer, RNNDummy)), None)
        if start is None:
            raise ConfigError("the net has no RNNDummy to take the seed text.")
        vocabulary = next(layer.vocabulary for layer in net.layers if isinstance(layer, CharRNNOutput))
        *before, last = encode_text(seed_text, vocabulary, "seed text").tolist()
        reading = [layer for layer in net.layers if not layer.traits.is_output]
        for number in before:
            start.feed(number)
            for layer in reading:
                net.forward(layer, phase)
        start.feed(last)
    for _ in range(length):
        for layer in net.layers:
            net.forward(layer, phase)
