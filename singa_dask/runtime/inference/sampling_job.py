"""Derive a job whose net writes text from a job that trains on text: each batch reads the character drawn before.

Such a net begins with an RNNDummy and ends with a CharRNNOutput, as in SINGA's example. A job that has such a net
already is used as it is, except that its recurrent layers keep their state from batch to batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_dask.conf import ClusterConf, JobConf, LayerConf, NetConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS
from singa_dask.layers.embedding import OneHot, OneHotConf
from singa_dask.layers.text import CharRNN, CharRNNConf, CharRNNOutput, Sampling, SamplingConf, read_vocabulary

__all__ = ["sampling_job", "writes"]

# Keys of a layer about time steps and phases.
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
    return bool(_of_kind(job.neuralnet.layer, CharRNNOutput, Phase.TEST))


def sampling_job(job: JobConf, temperature: float | None = None) -> JobConf:
    """Return a job of one worker whose test net has one time step and writes text.

    Parameters
    ----------
    job : JobConf
        With a net that writes text, or one that reads text and is trained by a SoftmaxLoss.
    temperature : float, optional
        See `SamplingConf`; by default that of the job, or 1.

    Raises
    ------
    ConfigError
        The job has neither net; or a temperature is given, but the net always takes the best character.
    DataError
        The vocabulary cannot be read.
    """
    layers = job.neuralnet.layer
    layers = _with_rows(layers) if writes(job) else _writing(layers)
    layers = [_with_state(layer) for layer in layers]
    if temperature is not None:
        if not _of_kind(layers, Sampling):
            raise ConfigError("a temperature needs a net with a Sampling layer; this one has none.")
        layers = [_with_temperature(layer, temperature) for layer in layers]
    return job.model_copy(update={"neuralnet": NetConf(layer=layers), "cluster": ClusterConf()})


def _of_kind(layers: Sequence[LayerConf], kind: type, phase: Phase | None = None) -> list[LayerConf]:
    kept = [layer for layer in layers if phase is None or layer.in_phase(phase)]
    return [layer for layer in kept if layer.type in LAYERS and issubclass(LAYERS.find(layer.type), kind)]


def _writing(layers: Sequence[LayerConf]) -> list[LayerConf]:
    """Return the layers of a training net between text and scores, with an RNNDummy before and an output after."""
    inputs = _of_kind(layers, CharRNN, Phase.TRAIN)
    losses = [layer for layer in layers if layer.in_phase(Phase.TRAIN) and layer.type == "SoftmaxLoss"]
    if len(inputs) != 1 or len(losses) != 1:
        raise ConfigError(
            "expected a job that trains a net on text, with one CharRNN and one SoftmaxLoss, or whose net writes, from "
            f"an RNNDummy to a CharRNNOutput. This one has {len(inputs)} CharRNN and {len(losses)} SoftmaxLoss."
        )
    [text], scores = inputs, losses[0].srclayers[0]
    by_name = {layer.name: layer for layer in layers if layer.in_phase(Phase.TRAIN)}
    needed, waiting = {text.name}, [scores]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += by_name[name].srclayers
    kept = [layer.model_copy(update=ONE_STEP) for name, layer in by_name.items() if name in needed - {text.name}]
    drawn = f"draw({scores})"
    block = text.block(CharRNNConf)
    start = {"shape": [1], "integer": True, "high": float(len(read_vocabulary(block))), "dynamic_srclayer": drawn}
    ends = [
        {"name": text.name, "type": "RNNDummy", "rnn_dummy_conf": start},
        {"name": drawn, "type": "Sampling", "srclayers": [scores], "sampling_conf": {}},
        {"name": f"write({scores})", "type": "CharRNNOutput", "srclayers": [drawn], "char_rnn_conf": block},
    ]
    dummy, draw, write = (LayerConf.model_validate(end) for end in ends)
    return [dummy, *kept, draw, write]


def _with_rows(layers: Sequence[LayerConf]) -> list[LayerConf]:
    """Set the size of one-hot rows to that of the vocabulary if the job does not set it, as in SINGA's sample.conf."""
    write = _of_kind(layers, CharRNNOutput, Phase.TEST)[0]
    short = [layer for layer in _of_kind(layers, OneHot) if not layer.block(OneHotConf).vocab_size]
    if not short:
        return list(layers)
    block = OneHotConf(vocab_size=len(read_vocabulary(write.block(CharRNNConf))))
    return [layer.with_block(block) if layer in short else layer for layer in layers]


def _with_state(layer: LayerConf) -> LayerConf:
    """Let a recurrent layer keep its state from batch to batch."""
    kind = LAYERS.find(layer.type).block
    block = layer.given_block(kind) if kind else None
    if block is None or "carry_state" not in type(block).model_fields:
        return layer
    return layer.with_block(block.model_copy(update={"carry_state": True}))


def _with_temperature(layer: LayerConf, temperature: float) -> LayerConf:
    if not _of_kind([layer], Sampling):
        return layer
    return layer.with_block(layer.block(SamplingConf).model_copy(update={"temperature": temperature}))
