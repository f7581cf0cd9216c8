"""ExportedNet: the layers of a test net to export, with their params."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.tables.facts import TableFacts
from singa_dask.errors import ConfigError
from singa_dask.exports.converters import input_dtype
from singa_dask.inference.filled_net import build, fill
from singa_dask.inference.inference_job import inference_job
from singa_dask.inference.predicted_layers import label_layer, output_layers
from singa_dask.inputs import StoreInput
from singa_dask.layers import LAYERS, Layer
from singa_dask.net import NeuralNet
from singa_dask.ops import get_ops
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.nets import build_net


@dataclass(frozen=True)
class ExportedNet:
    """The layers that compute some outputs from records, as in a test.

    Attributes
    ----------
    where : str
        Name of the job in messages.
    net : NeuralNet
        A net with only these layers, in float32.
    outputs : dict of str to list of Layer
        The output layers by their names in the job: the layer, or its copies in the order of time steps.
    class_names : dict of str to tuple of str
        Class names of each output, if they are known.
    tables : dict of str to TableFacts
        For each input layer that reads named columns, the meaning of a record's values.
    """

    where: str
    job: JobConf
    net: NeuralNet
    outputs: dict[str, list[Layer]]
    class_names: dict[str, tuple[str, ...]]
    tables: dict[str, TableFacts]

    @classmethod
    def of(cls, where: str, job: JobConf, layers: Sequence[str], give: Callable[[NeuralNet], object]) -> ExportedNet:
        """Build the net of a job.

        Parameters
        ----------
        where, job
            See `ExportedNet`.
        layers : sequence of str
            Names of the output layers. The default is the layers that losses compare with labels or targets, or else
            the last layers.
        give : callable
            Called with the net, to set the values of its params.

        Raises
        ------
        ConfigError
            The net cannot be built, or has no such layer.
        """
        phase = _phase_of(job, Phase.TEST, Phase.TRAIN)
        names = list(dict.fromkeys(layers)) or output_layers(job, phase)
        if not names:
            raise ConfigError(f"{where}: no layer is an output. Specify the output layers.")
        exact = job.model_copy(update={"precision": "float32", "gpu": [], "ops": "numpy"})
        part = inference_job(exact, phase, in_order=True, exposed=True)
        try:
            net = build(part.job, part.phase, names, labels=False, ops=get_ops("numpy"))
        except ConfigError as error:
            raise part.locate(error) from None
        give(net)
        outputs = {
            name: sorted((each for each in net.layers if each.conf_name == name), key=lambda each: each.site.first_step)
            for name in names
        }
        return cls(where, job, net, outputs, {}, {})

    @classmethod
    def of_checkpoint(cls, where: str, job: JobConf, layers: Sequence[str], urls: Sequence[str]) -> ExportedNet:
        """Build the net of a job with the values of checkpoints; see `of`."""
        initial = InitialValues(job, urls, averaged=True)
        exported = cls.of(where, job, layers, lambda net: fill(net, initial))
        learned, phase = initial.learned_to_predict(), _phase_of(job, Phase.TEST, Phase.TRAIN)
        class_names = {name: learned.class_names.get(label_layer(job, phase, name), ()) for name in exported.outputs}
        exported.class_names.update({name: classes for name, classes in class_names.items() if classes})
        exported.tables.update(learned.tables)
        exported.net.context.knowledge.known.scalings.update(learned.scalings)
        return exported

    def notes(self, format: str) -> list[str]:
        """Return notes for users of the model about states that are carried from batch to batch."""
        carrying = [layer.conf_name for layer in self.net.layers if getattr(layer, "carries", False)]
        names = list(dict.fromkeys(carrying))
        if format == "onnx":
            return [
                f"{name}: carry_state. Each input {name}.state is zeros at first, then the output {name}.next_state of "
                f"the batch before; so is the cell of an LSTM."
                for name in names
            ]
        return [
            f"{name}: carry_state is left out. The exported model begins each batch without a state." for name in names
        ]


def input_facts(net: NeuralNet, tables: Mapping[str, TableFacts]) -> dict[str, dict[str, Any]]:
    """Describe the inputs of a net as JSON values.

    ``tables`` has the input layers that read named columns.
    """
    facts: dict[str, dict[str, Any]] = {}
    for layer in net.inputs:
        facts[layer.conf_name] = {"shape": ["N", *layer.features[0].shape[1:]]}
        if isinstance(layer, StoreInput) and input_dtype(layer) == np.float64:
            facts[layer.conf_name]["dtype"] = "float64"
        if isinstance(layer, StoreInput) and len(layer.features[0].shape) == 4:
            facts[layer.conf_name]["layout"] = "NCHW"
        if layer.conf_name in tables:
            table = tables[layer.conf_name]
            facts[layer.conf_name]["columns"] = list(table.names)
            if table.texts:
                # inference needs the vocabulary to encode a text
                facts[layer.conf_name]["texts"] = {name: asdict(text) for name, text in table.texts.items()}
    return facts


def net_of_params(job: JobConf) -> NeuralNet:
    """Build the whole net of a job: the training net, or the test net if only the test net reads records."""
    part = inference_job(job, _phase_of(job, Phase.TRAIN, Phase.TEST), in_order=False)
    try:
        return build_net(part.job, part.phase)
    except ConfigError as error:
        raise part.locate(error) from None


def _phase_of(job: JobConf, phase: Phase, otherwise: Phase) -> Phase:
    """Return ``phase`` if its net reads records, else ``otherwise``."""
    inputs = [layer for layer in job.neuralnet.layer if LAYERS.find(layer.type).traits.role == "input"]
    return phase if any(layer.in_phase(phase) for layer in inputs) else otherwise
