"""Find the layers of a net that predict classes, values or targets."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.conf import JobConf, LayerConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import LAYERS, Traits


def traits_of(layer: LayerConf) -> Traits:
    """Return the traits of a layer's class."""
    return LAYERS.find(layer.type).traits


def predicts_classes(layer: LayerConf) -> bool:
    """Return whether a layer outputs class probabilities."""
    return traits_of(layer).predicts == "classes"


def is_class_loss(layer: LayerConf) -> bool:
    """Return whether a layer is a loss that outputs class probabilities."""
    return predicts_classes(layer) and traits_of(layer).role == "loss"


def _layers_of(job: JobConf, phase: Phase) -> dict[str, LayerConf]:
    """Return the layers of the net of a phase, by name."""
    return {layer.name: layer for layer in job.neuralnet.layer if layer.in_phase(phase)}


def _only(names: Sequence[str], what: str) -> str:
    if len(names) == 1:
        return names[0]
    raise ConfigError(f"expected one layer with {what}, found: {', '.join(names) or 'none'}. Specify the layer.")


def classifier(job: JobConf, phase: Phase) -> str:
    """Return the layer with class probabilities: the only SoftmaxLoss of a phase, or the only Softmax.

    Raises a ConfigError if there are several such layers, or none.
    """
    with_classes = [layer for layer in _layers_of(job, phase).values() if predicts_classes(layer)]
    losses = [layer.name for layer in with_classes if is_class_loss(layer)]
    return _only(losses if len(losses) == 1 else [layer.name for layer in with_classes], "the probabilities of classes")


def output_layers(job: JobConf, phase: Phase) -> list[str]:
    """Return the layers of a phase whose values the net was trained to predict.

    They are the losses that output probabilities, and the layers whose output another loss compares with targets. In a
    net without a loss, they are the layers that no other layer reads.
    """
    layers = _layers_of(job, phase)
    traits = {name: traits_of(layer) for name, layer in layers.items()}
    losses = sorted((each for name, each in layers.items() if traits[name].role == "loss"), key=compares_targets)
    if losses:
        compared = (
            next(
                (source for source in loss.srclayers if compares_targets(loss) and traits[source].role != "input"),
                loss.name,
            )
            for loss in losses
        )
        return list(dict.fromkeys(compared))
    # exclude output layers, because they only sort scores or write files
    ends = [name for name in layers if traits[name].role not in ("input", "output")]
    return [name for name in ends if not any(name in layers[other].srclayers for other in ends)]


def compares_targets(loss: LayerConf) -> bool:
    """Return whether a loss compares values with targets, instead of computing probabilities."""
    return traits_of(loss).predicts not in ("classes", "labels")


def output_layer(job: JobConf, phase: Phase) -> str:
    """Return the only layer of `output_layers`; raise a ConfigError if there are several, or none."""
    return _only(output_layers(job, phase), "the values to predict")


def predicted_layer(job: JobConf, phase: Phase) -> str:
    """Return the layer to predict from in a phase: the `classifier`, or else the `output_layer`."""
    if any(map(predicts_classes, _layers_of(job, phase).values())):
        return classifier(job, phase)
    return output_layer(job, phase)


def has_classes(job: JobConf, layer: str) -> bool:
    """Return whether the layer with this name outputs class probabilities."""
    return any(each.name == layer and predicts_classes(each) for each in job.neuralnet.layer)


def has_values(job: JobConf, phase: Phase, layer: str) -> bool:
    """Return whether a layer predicts numbers, or an independent probability for each of several labels."""
    has_labels = any(each.name == layer and traits_of(each).predicts == "labels" for each in job.neuralnet.layer)
    return has_labels or predicts_targets(job, phase, layer)


def predicts_targets(job: JobConf, phase: Phase, layer: str) -> bool:
    """Return whether a layer predicts numbers, which a loss compares with targets."""
    return bool(_compared_by(job, phase, layer))


def _compared_by(job: JobConf, phase: Phase, layer: str) -> str:
    """Return the first loss that compares a layer with targets; empty if no loss does."""
    losses = (layer for layer in _layers_of(job, phase).values() if traits_of(layer).role == "loss")
    return next((loss.name for loss in losses if compares_targets(loss) and layer in loss.srclayers[:1]), "")


def forecasts_itself(job: JobConf, phase: Phase, layers: Sequence[str]) -> bool:
    """Return whether the predictions of the layers can be inputs of later records of a time series.

    This requires a single layer, which predicts the only column with lags.
    """
    stores = [store for each in _layers_of(job, phase).values() if (store := each.given_block(StoreConf))]
    columns = {name for store in stores if store.lags for name in store.lags.columns}
    outputs = {name for store in stores for name in (*store.label_columns, *store.target)}
    return len(columns) == 1 and columns == outputs and [*layers] == [predicted_layer(job, phase)]


def target_names(job: JobConf, phase: Phase, layer: str) -> tuple[str, ...]:
    """Return the names of the columns with the targets of a layer; empty if the columns have no names."""
    layers = _layers_of(job, phase)
    loss = layers.get(_compared_by(job, phase, layer) or layer)
    targets = layers.get(loss.srclayers[1]) if loss and len(loss.srclayers) > 1 else None
    store = targets.given_block(StoreConf) if targets else None
    return tuple(store.target) if store else ()


def label_layer(job: JobConf, phase: Phase, layer: str) -> str:
    """Return the input layer that has the labels for a layer's classes.

    ``layer`` is a SoftmaxLoss, or the layer that computes the scores or the probabilities for a SoftmaxLoss. The result
    is empty if no SoftmaxLoss compares the layer with labels.
    """
    layers = _layers_of(job, phase)
    scores = {layer, *(layers[layer].srclayers[:1] if layer in layers and predicts_classes(layers[layer]) else ())}
    for loss in layers.values():
        if is_class_loss(loss) and len(loss.srclayers) > 1 and (loss.name == layer or loss.srclayers[0] in scores):
            name = loss.srclayers[1]
            for _ in layers:
                # layers between a loss and its input layer pass labels on unchanged
                sources = layers[name].srclayers if name in layers else []
                name = sources[0] if sources else name
            return name
    return ""
