"""Write text with a trained net, character by character."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, TextIO

import numpy as np

from singa_dask.arrays import Array
from singa_dask.conf import ClusterConf, JobConf, LayerConf, NetConf, Phase
from singa_dask.data.stores.texts.vocabulary import encode_text
from singa_dask.errors import ConfigError
from singa_dask.inference.filled_net import fill
from singa_dask.inputs import sampling, text
from singa_dask.layers import LAYERS, Layer
from singa_dask.layers.embedding import OneHot, OneHotConf, PositionalEmbedding
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.devices import device_of_part, explain_memory_errors
from singa_dask.runtime.planning.nets import build_net, find_ops
from singa_dask.runtime.planning.thread_limits import limit_process, limit_thread


def sample(
    job: JobConf, init_from: Sequence[str], length: int, seed_text: str = "", file: TextIO | None = None
) -> None:
    """Write text with a net. Each batch writes one character for each of its rows.

    Parameters
    ----------
    job : JobConf
        A job from `sampling_job`.
    init_from : sequence of str
        URLs of checkpoints that replace the job's ``checkpoint_path``. If several contain a param, the last of these
        checkpoints is used.
    length : int
        Number of batches.
    seed_text : str
        Text that the net reads before it writes. If empty, the net starts with the random data of its RNNDummy.
    file : text file, optional
        Where to write the text. The default is standard output.

    Raises
    ------
    ConfigError
        The net cannot be built, or has no RNNDummy to read the seed text.
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
        fill(net, InitialValues(job, init_from, averaged=True))
        for layer in net.layers:
            if isinstance(layer, text.CharRNNOutput):
                layer.file = file
        # a single row is too little work for several threads
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
        vocabulary = next(layer.vocabulary for layer in net.layers if isinstance(layer, text.CharRNNOutput))
        *before, last = encode_text(seed_text, vocabulary, "seed text").tolist()
        for number in before:
            writer.read(number)
    for k in range(length):
        writer.write(None if k else last)


class _Writer:
    """A net that reads one character per batch and writes the next one.

    The context window of a net with a `PositionalEmbedding` has a limited length. When it is full, the net starts
    again, and reads the second half of the window once more.
    """

    def __init__(self, net: NeuralNet) -> None:
        self.net = net
        self.start = next((layer for layer in net.layers if isinstance(layer, sampling.RNNDummy)), None)
        self.reading = [layer for layer in net.layers if layer.traits.role != "output"]
        windows = [layer.max_length for layer in net.layers if isinstance(layer, PositionalEmbedding)]
        self.window = min(windows, default=0)
        self.recent: deque[Array] = deque(maxlen=self.window // 2)
        self.n_read = 0

    def read(self, value: Any = None) -> None:
        """Read a character. The default is the last written character."""
        self._run(self.reading, value)

    def write(self, value: Any = None) -> None:
        """Read a character as `read` does, and write the next character."""
        self._run(self.net.layers, value)

    def _run(self, layers: Sequence[Layer], value: Any) -> None:
        start = self.start
        if start is not None and self.n_read == self.window > 0:
            self.net.context.states.clear()
            self.n_read = 0
            for values in list(self.recent):
                self.read(values)
        if start is not None and value is not None:
            start.feed(value)
        for layer in layers:
            self.net.forward(layer, Phase.TEST | Phase.FORWARD)
        if start is not None and self.window:
            self.recent.append(np.array(self.net.ops.to_host(start.features[0].data)))
            self.n_read += 1


# keys of a layer about time steps and phases -> value that resets the key
ONE_STEP: dict[str, Any] = {
    "unroll_len": None,
    "unroll_conn_type": [],
    "unroll_steps": [],
    "shift": [],
    "include": [],
    "exclude": [],
}


def writes(job: JobConf) -> bool:
    """Return whether the test net of a job writes text."""
    return bool(_of_kind(job.neuralnet.layer, text.CharRNNOutput, Phase.TEST))


def sampling_job(job: JobConf, temperature: float | None = None) -> JobConf:
    """Return a job with one worker whose test net has one time step and writes text.

    Parameters
    ----------
    job : JobConf
        A job whose test net writes text, or whose training net reads text and has a SoftmaxLoss.
    temperature : float, optional
        See `SamplingConf`. The default is the job's temperature, or 1.

    Raises
    ------
    ConfigError
        The job has no such net, or a temperature is passed and the net has no Sampling layer.
    DataError
        The vocabulary cannot be read.
    """
    layers = job.neuralnet.layer
    layers = _with_rows(layers) if writes(job) else _writing(layers)
    layers = [_with_state(layer) for layer in layers]
    if temperature is not None:
        if not _of_kind(layers, sampling.Sampling):
            raise ConfigError("a temperature needs a net with a Sampling layer; this one has none.")
        layers = [_with_temperature(layer, temperature) for layer in layers]
    return job.model_copy(update={"neuralnet": NetConf(layer=layers), "cluster": ClusterConf()})


def _of_kind(layers: Sequence[LayerConf], kind: type, phase: Phase | None = None) -> list[LayerConf]:
    kept = [layer for layer in layers if phase is None or layer.in_phase(phase)]
    return [layer for layer in kept if layer.type in LAYERS and issubclass(LAYERS.find(layer.type), kind)]


def _writing(layers: Sequence[LayerConf]) -> list[LayerConf]:
    """Return the layers of a training net from text to scores, between an RNNDummy and an output layer."""
    inputs = _of_kind(layers, text.CharRNN, Phase.TRAIN)
    losses = [layer for layer in layers if layer.in_phase(Phase.TRAIN) and layer.type == "SoftmaxLoss"]
    if len(inputs) != 1 or len(losses) != 1:
        raise ConfigError(
            "expected a job that trains a net on text, with one CharRNN and one SoftmaxLoss, or whose net writes, from "
            f"an RNNDummy to a CharRNNOutput. This one has {len(inputs)} CharRNN and {len(losses)} SoftmaxLoss."
        )
    [text_input], scores = inputs, losses[0].srclayers[0]
    by_name = {layer.name: layer for layer in layers if layer.in_phase(Phase.TRAIN)}
    needed, waiting = {text_input.name}, [scores]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += by_name[name].srclayers
    kept = [layer.model_copy(update=ONE_STEP) for name, layer in by_name.items() if name in needed - {text_input.name}]
    drawn = f"draw({scores})"
    block = text_input.block(text.CharRNNConf)
    start = {"shape": [1], "integer": True, "high": float(len(text.read_vocabulary(block))), "dynamic_srclayer": drawn}
    ends = [
        {"name": text_input.name, "type": "RNNDummy", "rnn_dummy_conf": start},
        {"name": drawn, "type": "Sampling", "srclayers": [scores], "sampling_conf": {}},
        {"name": f"write({scores})", "type": "CharRNNOutput", "srclayers": [drawn], "char_rnn_conf": block},
    ]
    dummy, draw, write = (LayerConf.model_validate(end) for end in ends)
    return [dummy, *kept, draw, write]


def _with_rows(layers: Sequence[LayerConf]) -> list[LayerConf]:
    """Set the size of one-hot rows to the size of the vocabulary, if the job sets no size.

    SINGA's sample.conf relies on this.
    """
    write = _of_kind(layers, text.CharRNNOutput, Phase.TEST)[0]
    short = [layer for layer in _of_kind(layers, OneHot) if not layer.block(OneHotConf).vocab_size]
    if not short:
        return list(layers)
    block = OneHotConf(vocab_size=len(text.read_vocabulary(write.block(text.CharRNNConf))))
    return [layer.with_block(block) if layer in short else layer for layer in layers]


def _with_state(layer: LayerConf) -> LayerConf:
    """Return a layer; a recurrent layer is changed to keep its state from batch to batch."""
    kind = LAYERS.find(layer.type).options_class
    block = layer.given_block(kind) if kind else None
    if block is None or "carry_state" not in type(block).model_fields:
        return layer
    return layer.with_block(block.model_copy(update={"carry_state": True}))


def _with_temperature(layer: LayerConf, temperature: float) -> LayerConf:
    if not _of_kind([layer], sampling.Sampling):
        return layer
    return layer.with_block(layer.block(sampling.SamplingConf).model_copy(update={"temperature": temperature}))
