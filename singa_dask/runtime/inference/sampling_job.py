"""From a job that trains a net on text to one whose net writes: each batch reads what the batch before has drawn.

Such a net begins with an RNNDummy and ends with a CharRNNOutput, as in SINGA's example; a job that has one is taken as
it is, but for its recurrent layers, which keep their state from batch to batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_dask.conf import CharRNNConf, ClusterConf, Conf, JobConf, LayerConf, NetConf, OneHotConf, Phase, SamplingConf
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS
from singa_dask.layers.embedding import OneHot
from singa_dask.layers.text import CharRNN, CharRNNOutput, Sampling, read_vocabulary

__all__ = ["sampling_job", "writes"]

# What a layer says of time steps and phases.
ONE_STEP: dict[str, Any] = {
    "unroll_len": None,
    "unroll_conn_type": [],
    "unroll_steps": [],
    "shift": [],
    "include": [],
    "exclude": [],
}


def writes(job: JobConf) -> bool:
    """Say whether the test net of a job writes text."""
    return bool(_of_kind(job.neuralnet.layer, CharRNNOutput, Phase.TEST))


def sampling_job(job: JobConf, temperature: float | None = None) -> JobConf:
    """Return a job of one worker whose test net has one time step and writes text.

    Parameters
    ----------
    job : JobConf
        Of a net that writes, or of one that reads text and learns by a SoftmaxLoss.
    temperature : float, optional
        See `SamplingConf`; what the job says, or else 1, when not given.

    Raises
    ------
    ConfigError
        It is neither; or it takes the best character always, where a temperature is given.
    DataError
        There is no vocabulary.
    """
    layers = job.neuralnet.layer
    layers = _with_rows(layers) if writes(job) else _writing(layers)
    layers = [_with_state(layer) for layer in layers]
    if temperature is not None:
        if not _of_kind(layers, Sampling):
            raise ConfigError("a temperature is for nets that draw, with a Sampling layer; this one has none.")
        layers = [_with_temperature(layer, temperature) for layer in layers]
    return job.model_copy(update={"neuralnet": NetConf(layer=layers), "cluster": ClusterConf()})


def _of_kind(layers: Sequence[LayerConf], kind: type, phase: Phase | None = None) -> list[LayerConf]:
    kept = [layer for layer in layers if phase is None or layer.in_phase(phase)]
    return [layer for layer in kept if layer.type in LAYERS and issubclass(LAYERS.find(layer.type), kind)]


def _writing(layers: Sequence[LayerConf]) -> list[LayerConf]:
    """Return the layers from the text to the scores of a training net, the text replaced, and what writes."""
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
    """Make one-hot rows as long as the vocabulary where the job does not say, as SINGA's sample.conf."""
    write = _of_kind(layers, CharRNNOutput, Phase.TEST)[0]
    short = [layer for layer in _of_kind(layers, OneHot) if not layer.block(OneHotConf).vocab_size]
    block = OneHotConf(vocab_size=len(read_vocabulary(write.block(CharRNNConf)))) if short else None
    return [layer.model_copy(update={"onehot_conf": block}) if layer in short else layer for layer in layers]


def _with_state(layer: LayerConf) -> LayerConf:
    """Let a recurrent layer go on from the state of the batch before."""
    blocks = {name: getattr(layer, name) for name in type(layer).model_fields if name.endswith("_conf")}
    changed = {
        name: block.model_copy(update={"carry_state": True})
        for name, block in blocks.items()
        if isinstance(block, Conf) and "carry_state" in type(block).model_fields
    }
    return layer.model_copy(update=changed)


def _with_temperature(layer: LayerConf, temperature: float) -> LayerConf:
    if not _of_kind([layer], Sampling):
        return layer
    block = layer.block(SamplingConf).model_copy(update={"temperature": temperature})
    return layer.model_copy(update={"sampling_conf": block})
