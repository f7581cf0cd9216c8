"""TorchModule: a module of PyTorch as one layer of a net."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Called, Field, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.site import LayerSite
from singa_dask.layers.torch_tensors import LaterValues, call, drawing, import_torch, seed_of, tensor_of, write_grad
from singa_dask.layers.traits import Traits
from singa_dask.lazy import require
from singa_dask.ops.contract import Array
from singa_dask.wording import listed

if TYPE_CHECKING:
    from singa_dask.conf import LayerConf
    from singa_dask.layers.context import Context
    from singa_dask.layers.feature import Feature
    from singa_dask.layers.torch_tensors import Module, Tensor


PLACE = ("torchmodule_conf", "module")
"""Path of the key ``module`` within a layer, for error messages."""


class TorchModuleConf(Conf):
    """``torchmodule_conf``: a module of PyTorch."""

    rest: ClassVar[str] = "args"

    module: Called
    """The class of the module, or a function that returns a module: ``mymodels:Encoder`` is Encoder in mymodels.py."""
    args: dict[str, Any] = Field(default={})
    """Keyword arguments of the class or function."""
    num_outputs: Size | None = None
    """Number of tensors that the module returns in a tuple, list or dict. The first layer that reads this layer gets
    the first tensor, the second layer the second tensor, and so on. By default, the module returns one tensor for all
    of these layers."""
    seed: int | None = None
    """Seed of the initial values, for ``torch.manual_seed``. The default depends only on the job's seed and the name of
    the layer."""


@LAYERS.register()
class TorchModule(Layer):
    """y = module(x, ...), computed and differentiated by PyTorch: x and y (N, ...), one x for each source.

    A module that returns several tensors, in a tuple or dict, needs ``num_outputs``.

    The params have the names and the initial values of the module's state dict. Buffers of floats, such as the running
    mean of a BatchNorm, are averaged over the workers. Each worker has its own buffers of integers. Checkpoints include
    all of these buffers. A param whose ``requires_grad`` is False is not trained.

    Random numbers, such as the masks of Dropout, depend only on the job's seed, the layer, the step and the worker. The
    layer can be partitioned by records, but not by features.

    Raises
    ------
    ConfigError
        PyTorch is not installed, the module does not exist, or it cannot compute the records of the sources.
    """

    options_class = TorchModuleConf
    outputs_key = "num_outputs"
    traits = Traits(n_sources=(1, None))

    def __init__(self, conf: LayerConf, context: Context, site: LayerSite | None = None) -> None:
        super().__init__(conf, context, site)
        self.torch = import_torch(f"layer {conf.name}")
        # first build the module without values, because most nets are only checked
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.outline = self._built("meta")
        except ConfigError:
            # a constructor that reads values of tensors cannot run on the device meta, which has no values
            self.outline = self.module
        kept = self.outline.state_dict()
        buffers = {name: each.is_floating_point() for name, each in self.outline.named_buffers() if name in kept}
        self.statistic_names = [name for name, is_float in buffers.items() if is_float]
        self.counter_names = [name for name, is_float in buffers.items() if not is_float]
        # tied params have one entry
        self.trains = {name: weight.requires_grad for name, weight in self.outline.named_parameters()}
        self.traits = type(self).traits.replace(params=(*self.trains, *self.statistic_names))
        self._bound: dict[str, Array] = {}
        self._inputs: list[Tensor] = []
        self._outputs: list[tuple[Tensor, Feature]] = []
        self._taken: set[str] = set()

    def _built(self, device: str) -> Module:
        """Build the module on a device of PyTorch: ``meta`` for shapes, ``cpu`` for values."""
        options, torch = self.options, self.torch
        key = (self.context.seed, "torch", self.site.layer)
        with torch.device(device):
            module = call(PLACE, options.module, options.args, seed_of(key) if options.seed is None else options.seed)
        if not isinstance(module, torch.nn.Module):
            message = f"{options.module} returns {type(module).__name__}, expected a torch.nn.Module."
            raise ConfigError(Problem(PLACE, message))
        return module.to(getattr(torch, self.context.param_dtype.name))

    @cached_property
    def module(self) -> Module:
        """The module with its initial values, built on first use."""
        return self._built("cpu")

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The params of the module by name."""
        found = dict(self.module.named_parameters())
        if {name: (found[name].shape, found[name].requires_grad) for name in found} != {
            name: (each.shape, each.requires_grad) for name, each in self.outline.named_parameters()
        }:
            message = f"{self.options.module} returns another module each time it is called, expected the same params."
            raise ConfigError(Problem(PLACE, message))
        for name, weight in found.items():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(partial(self._take_grad, name))
        return found

    @cached_property
    def buffers_by_name(self) -> dict[str, Tensor]:
        """The buffers of the module by name."""
        return dict(self.module.named_buffers())

    def setup(self) -> None:
        if self.site.feature_shard.count > 1:
            message = "PyTorch computes all features of a module. Use 0, which partitions it by records, or -1."
            raise ConfigError(Problem(("partition_dim",), message))
        for shape in self._output_shapes():
            self.add_output(shape)
        kept = self.outline.state_dict()
        initial: Any
        for name, trains in self.trains.items():
            initial = LaterValues(partial(self._initial, name))
            self.add_param(self.outline.get_parameter(name).shape, initial=initial, trains=trains)
        for name in self.statistic_names:
            initial = LaterValues(partial(self._initial, name))
            self.add_param(kept[name].shape, initial=initial, running_statistic=True)

    def _initial(self, name: str) -> Array:
        values: Array = {**self.buffers_by_name, **self.weights}[name].detach().numpy()
        return values

    def _output_shapes(self) -> list[tuple[int, ...]]:
        """Compute the shapes of the outputs, without values if the module permits it."""
        try:
            outputs = self._tried(self.outline, "meta")
        except Exception:
            # a module that reads values of tensors cannot run on the device meta, and errors on the CPU have clearer
            # messages
            try:
                outputs = self._tried(self.module, "cpu")
            except Exception as error:
                message = f"{self.options.module} cannot compute these records: {type(error).__name__}: {error}"
                raise ConfigError(Problem(PLACE, message)) from error
        n_rows = self.sources[0].shape[0]
        shapes = [tuple(each.shape) for each in outputs]
        for shape in shapes:
            if shape[:1] != (n_rows,):
                message = f"{self.options.module} returns {shape} for {n_rows} records, expected {n_rows} rows."
                raise ConfigError(Problem(PLACE, message))
        return shapes

    def _tried(self, module: Module, device: str) -> list[Tensor]:
        """Compute the outputs for sources of zeros."""
        sizes = [(source.shape, self._dtype_of(source)) for source in self.sources]
        inputs = [self.torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in sizes]
        with self.torch.no_grad(), drawing(0), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # training shows them
            return self._listed(module.eval()(*inputs))

    def _listed(self, output: Any) -> list[Tensor]:
        """Return the output of the module as a list of tensors.

        Raises
        ------
        ConfigError
            The output has other types, or a number of tensors that differs from ``num_outputs``.
        """
        options = self.options
        several = isinstance(output, Mapping | tuple | list)
        found = list(output.values() if isinstance(output, Mapping) else output) if several else [output]
        kinds = listed(sorted({type(each).__name__ for each in found if not isinstance(each, self.torch.Tensor)}))
        if kinds:
            message = f"{options.module} returns {kinds}, expected tensors. Wrap it in a module."
            raise ConfigError(Problem(PLACE, message))
        if several and len(found) != options.num_outputs:
            message = f"{options.module} returns {len(found)} tensors. Set num_outputs: {len(found)}."
            raise ConfigError(Problem((PLACE[0], "num_outputs"), message))
        if not several and options.num_outputs is not None:
            message = f"{options.module} returns one tensor. Leave num_outputs out."
            raise ConfigError(Problem((PLACE[0], "num_outputs"), message))
        return found

    def _dtype_of(self, source: Feature) -> Any:
        return self.torch.float32 if source.dtype.name == "bfloat16" else getattr(self.torch, source.dtype.name)

    def state_dict(self) -> dict[str, Array]:
        """Return the state dict of the module, with the values of the job's params and the layer's state."""
        self._bind()
        return {name: value.detach().numpy() for name, value in self.module.state_dict().items()}

    def to_onnx(self, opset: int) -> Any:
        """Return an ONNX model of the module for a test, with any number of records.

        Raises
        ------
        ConfigError
            The package onnxscript is missing, or PyTorch cannot export the module.
        """
        torch = self.torch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            require("onnxscript", "onnx", "ONNX export of a module of PyTorch")
        self._bind()
        # use two records: from a single one, PyTorch would infer that the number of records is always 1
        inputs = tuple(torch.zeros(2, *each.shape[1:], dtype=self._dtype_of(each)) for each in self.sources)
        shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
        # PyTorch logs which libraries it does not find
        logger = logging.getLogger("torch.onnx")
        level = logger.level
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                logger.setLevel(logging.ERROR)
                program = torch.export.export(self.module.eval(), inputs, dynamic_shapes=shapes)
                return torch.onnx.export(program, opset_version=opset, verbose=False).model_proto
        except Exception as error:
            reason = " ".join(str(error).partition("\n\n")[0].split())
            raise ConfigError(f"PyTorch cannot export {self.options.module}: {reason}") from error
        finally:
            logger.setLevel(level)

    def _bind(self) -> None:
        """Make the module use the params and the state of this layer."""
        weights, buffers = self.weights, self.buffers_by_name
        for name, param in zip(self.traits.params, self.params, strict=True):
            param.initial = None  # the module has other values from here on
            if name not in weights:
                buffers[name].copy_(tensor_of(param.data))
            elif param.data is not self._bound.get(name):
                self._bound[name] = param.data
                weights[name].data = tensor_of(param.data)
        for name, value in zip(self.counter_names, self.state or (), strict=bool(self.state)):
            buffers[name].copy_(self.torch.from_numpy(value))

    def forward(self, phase: Phase) -> None:
        torch, training = self.torch, bool(phase & Phase.TRAIN)
        self._bind()
        if self.module.training != training:
            self.module.train(training)
        self._inputs = [tensor_of(source.data) for source in self.sources]
        for x, source in zip(self._inputs, self.sources, strict=True):
            x.requires_grad_(training and source.grad is not None)
        learns = training and any(feature.grad is not None for feature in self.features)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(learns))
            if training:
                stack.enter_context(drawing(seed_of(self.random_key(self.site.batch_shard.index))))
            if self.context.dtype.name == "bfloat16":
                stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            outputs = self._listed(self.module(*self._inputs))
        for output, feature in zip(outputs, self.features, strict=True):
            if "data" in feature.consumed_as:
                tensor_of(feature.data).copy_(output.detach())
        self._outputs = list(zip(outputs, self.features, strict=True)) if learns else []
        if training and self.counter_names:
            self.state = tuple(self.buffers_by_name[name].numpy().copy() for name in self.counter_names)

    def backward(self, phase: Phase) -> None:
        learning = [(y, feature.grad) for y, feature in self._outputs if feature.grad is not None and y.requires_grad]
        self._outputs, self._taken = [], set()
        if learning:
            outputs = [y for y, _ in learning]
            self.torch.autograd.backward(outputs, [tensor_of(gy).to(y.dtype) for y, gy in learning])
        for name, param in zip(self.traits.params, self.params, strict=True):
            if name not in self.weights:
                # an update subtracts the gradient of a running statistic from its value
                self.torch.sub(tensor_of(param.data), self.buffers_by_name[name], out=tensor_of(param.grad))
            elif param.trains and name not in self._taken:
                write_grad(None, param.grad)
        for x, source in zip(self._inputs, self.sources, strict=True):
            if source.grad is not None:
                write_grad(x.grad, source.grad)
            x.grad = None

    def _take_grad(self, name: str, weight: Tensor) -> None:
        """Copy the gradient that PyTorch has just computed to a param, and mark the param as `ready`."""
        if name in self._taken:
            message = f"PyTorch computes the gradient of {name} in several parts. Use checkpoint(use_reentrant=False)."
            raise RuntimeError(f"layer {self.name}: {message}")
        param = self.params[self.traits.params.index(name)]
        write_grad(weight.grad, param.grad)
        weight.grad = None
        self._taken.add(name)
        self.ready(param)
