"""TorchLoss: a loss that PyTorch computes, given as a class or a function."""

from __future__ import annotations

import inspect
import itertools
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Called, Field
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.site import LayerSite
from singa_dask.layers.torch_tensors import call, drawing, find, import_torch, seed_of, tensor_of, write_grad
from singa_dask.layers.traits import Traits

if TYPE_CHECKING:
    from singa_dask.conf import LayerConf
    from singa_dask.layers.context import Context
    from singa_dask.layers.torch_tensors import Tensor


PLACE = ("torchloss_conf", "loss")
"""Path of the key ``loss`` within a layer, for error messages."""


class TorchLossConf(Conf):
    """``torchloss_conf``: a loss of PyTorch."""

    rest: ClassVar[str] = "args"

    loss: Called
    """A class, such as ``torch.nn:CrossEntropyLoss``, or a function of outputs and target, such as
    ``mymodels:my_loss``."""
    args: dict[str, Any] = Field(default={})
    """Keyword arguments of the class, or of each call of the function."""
    target: Literal["labels", "data"] = "labels"
    """What the loss reads from the last source: labels, (N,) int64, or data."""


@LAYERS.register()
class TorchLoss(Layer):
    """loss = f(x, ..., target), differentiated by PyTorch; the last source has the target.

    The loss should be a mean over the records, as losses of `torch.nn` are by default, because the gradients of several
    workers are averaged. The metric is "loss". Predictions are the values of the first source.

    Raises
    ------
    ConfigError
        PyTorch is not installed, the loss does not exist, or it does not return a single number.
    """

    options_class = TorchLossConf
    traits = Traits(n_sources=(2, None), role="loss", metrics=("loss",), predicts="values")

    def __init__(self, conf: LayerConf, context: Context, site: LayerSite | None = None) -> None:
        super().__init__(conf, context, site)
        self.torch = import_torch(f"layer {conf.name}")
        block = conf.block(TorchLossConf)
        found, self.args = find(PLACE, block.loss), dict(block.args)
        if inspect.isclass(found):
            found, self.args = call(PLACE, block.loss, block.args, seed_of((context.seed, conf.name))), {}
        self.loss = found
        self.reads_labels = block.target == "labels"
        last = "labels" if self.reads_labels else "data"
        n_outputs = len(conf.srclayers) - 1
        self.traits = type(self).traits.replace(consumes=(*["data"] * n_outputs, last))
        self._inputs: list[Tensor] = []
        self._loss: Tensor | None = None

    def setup(self) -> None:
        torch, (*outputs, target), options = self.torch, self.sources, self.options
        self.add_output(outputs[0].shape, dtype=outputs[0].dtype, own_data=False)
        zeros = [torch.zeros(each.shape) for each in outputs]
        wanted = torch.zeros(target.shape[0], dtype=torch.int64) if self.reads_labels else torch.zeros(target.shape)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                # PyTorch only warns if it pairs each output with each target
                warnings.filterwarnings("error", "Using a target size", UserWarning)
                found = self.loss(*zeros, wanted, **self.args)
        except Exception as error:
            shapes = ", ".join(str(tuple(each.shape)) for each in (*zeros, wanted))
            message = f"{options.loss} cannot compute arrays of shapes {shapes}: {type(error).__name__}: {error}"
            raise ConfigError(Problem(PLACE, message)) from error
        if not isinstance(found, torch.Tensor) or found.ndim:
            what = f"a tensor {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
            message = f"{options.loss} returns {what}, expected one number: a mean over the records."
            raise ConfigError(Problem(PLACE, message))

    def forward(self, phase: Phase) -> None:
        torch, training = self.torch, bool(phase & Phase.TRAIN)
        floats = self.sources[:-1] if self.reads_labels else self.sources
        self.features[0].data = floats[0].data
        self._inputs = [tensor_of(each.data) for each in floats]
        for x, source in zip(self._inputs, floats, strict=True):
            x.requires_grad_(training and source.grad is not None)
        labels = [tensor_of(self.labels(len(floats))).long()] if self.reads_labels else []
        with torch.set_grad_enabled(training), drawing(seed_of(self.random_key(self.site.batch_shard.index))):
            loss = self.loss(*self._inputs, *labels, **self.args)
        if loss.ndim:
            raise self.data_error(f"the loss has shape {tuple(loss.shape)}, expected one number.")
        self._loss = loss if training else None
        self.add_metric("loss", float(loss.detach()))

    def backward(self, phase: Phase) -> None:
        assert self._loss is not None
        wanted = [x for x in self._inputs if x.requires_grad]
        found = self.torch.autograd.grad(self._loss, wanted, allow_unused=True) if self._loss.requires_grad else ()
        self._loss = None
        learning = [source.grad for source in self.sources if source.grad is not None]
        # labels have no gradient
        for memory, grad in itertools.zip_longest(learning, found):
            write_grad(grad, memory)
