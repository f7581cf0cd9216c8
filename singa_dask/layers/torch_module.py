"""TorchModule: a module of PyTorch as one layer of a net."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any, ClassVar

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Called, Field
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, LayerSite
from singa_dask.layers.torch_tensors import call, drawing, import_torch, seed_of, tensor_of, write_grad
from singa_dask.layers.traits import Traits
from singa_dask.ops.contract import Array

if TYPE_CHECKING:
    from singa_dask.conf import LayerConf
    from singa_dask.layers.context import Context
    from singa_dask.layers.feature import Feature
    from singa_dask.layers.torch_tensors import Module, Tensor


PLACE = ("torchmodule_conf", "module")
"""Where a layer names its module, for errors."""


class TorchModuleConf(Conf):
    """``torchmodule_conf``: a module of PyTorch."""

    rest: ClassVar[str] = "args"

    module: Called
    """The class of the module, or a function that returns one: ``mymodels:Encoder`` is Encoder of mymodels.py."""
    args: dict[str, Any] = Field(default={})
    """Keyword arguments of the class or function."""
    seed: int | None = None
    """Seed of the initial values, as ``torch.manual_seed`` takes it. By default it follows from the job's seed and the
    name of the layer."""


@LAYERS.register()
class TorchModule(Layer):
    """y = module(x, ...), computed and differentiated by PyTorch: x and y (N, ...), one x for each source.

    Params have the names of the module's state dict, and its initial values. Buffers of floats, such as the running
    mean of a BatchNorm, are averaged over the workers and kept in checkpoints. Buffers of integers are kept in
    checkpoints; each worker has its own. A param with ``requires_grad`` False is not trained.

    Random numbers, such as those of Dropout, follow from the job's seed, layer, step and worker. A module computes the
    rows that its worker has: it can be partitioned by records, not by features.

    Raises
    ------
    ConfigError
        PyTorch is not installed; there is no such module; or it cannot compute the records of its sources.
    """

    block = TorchModuleConf
    traits = Traits(n_sources=(1, None))

    def __init__(self, conf: LayerConf, context: Context, site: LayerSite | None = None) -> None:
        super().__init__(conf, context, site)
        self.torch = import_torch(f"layer {conf.name}")
        block = conf.block(TorchModuleConf)
        key = (context.seed, "torch", self.site.layer)
        module = call(PLACE, block.module, block.args, seed_of(key) if block.seed is None else block.seed)
        if not isinstance(module, self.torch.nn.Module):
            message = f"{block.module} returns {type(module).__name__}, expected a torch.nn.Module."
            raise ConfigError(Problem(PLACE, message))
        self.module: Module = module.to(getattr(self.torch, context.param_dtype.name))
        kept, buffers = self.module.state_dict(), dict(self.module.named_buffers())
        # tied params have one entry
        self.weights = dict(self.module.named_parameters())
        self.statistics = {name: buffers[name] for name in kept if name in buffers and kept[name].is_floating_point()}
        self.counters = [buffers[name] for name in kept if name in buffers and name not in self.statistics]
        self.traits = type(self).traits.replace(params=(*self.weights, *self.statistics))
        self._bound: dict[str, Array] = {}
        self._inputs: list[Tensor] = []
        self._output: Tensor | None = None

    def setup(self) -> None:
        if self.site.feature_shard.count > 1:
            message = "PyTorch computes all features of a module. Use 0, which partitions it by records, or -1."
            raise ConfigError(Problem(("partition_dim",), message))
        self.add_output(self._output_shape())
        for weight in self.weights.values():
            self.add_param(weight.shape, initial=weight.detach().numpy(), trains=weight.requires_grad)
        for statistic in self.statistics.values():
            self.add_param(statistic.shape, initial=statistic.numpy(), running_statistic=True)

    def _output_shape(self) -> tuple[int, ...]:
        """Compute the shape of the output, without values."""
        block, torch = self.conf.block(TorchModuleConf), self.torch
        inputs = [torch.zeros(source.shape, dtype=self._dtype_of(source), device="meta") for source in self.sources]
        try:
            with torch.no_grad():
                output = copy.deepcopy(self.module).to("meta").eval()(*inputs)
        except Exception as error:
            message = f"{block.module} cannot compute these records: {type(error).__name__}: {error}"
            raise ConfigError(Problem(PLACE, message)) from error
        if not isinstance(output, torch.Tensor):
            message = f"{block.module} returns {type(output).__name__}, expected one tensor. Wrap it in a module."
            raise ConfigError(Problem(PLACE, message))
        shape, n_rows = tuple(output.shape), self.sources[0].shape[0]
        if shape[:1] != (n_rows,):
            message = f"{block.module} returns {shape} for {n_rows} records, expected {n_rows} rows."
            raise ConfigError(Problem(PLACE, message))
        return shape

    def _dtype_of(self, source: Feature) -> Any:
        return self.torch.float32 if source.dtype.name == "bfloat16" else getattr(self.torch, source.dtype.name)

    def state_dict(self) -> dict[str, Array]:
        """Return the state dict of the module, with the values of the job's params and the layer's state."""
        self._bind()
        return {name: value.detach().numpy() for name, value in self.module.state_dict().items()}

    def _bind(self) -> None:
        """Point the module to the params and the state that the job has."""
        for name, param in zip(self.traits.params, self.params, strict=True):
            param.initial = None  # releases the memory of the module's own values
            if name in self.statistics:
                self.statistics[name].copy_(tensor_of(param.data))
            elif param.data is not self._bound.get(name):
                self._bound[name] = param.data
                self.weights[name].data = tensor_of(param.data)
        for counter, value in zip(self.counters, self.state or (), strict=bool(self.state)):
            counter.copy_(self.torch.from_numpy(value))

    def forward(self, phase: Phase) -> None:
        torch, training = self.torch, bool(phase & Phase.TRAIN)
        self._bind()
        if self.module.training != training:
            self.module.train(training)
        self._inputs = [tensor_of(source.data) for source in self.sources]
        for x, source in zip(self._inputs, self.sources, strict=True):
            x.requires_grad_(training and source.grad is not None)
        learns = training and self.features[0].grad is not None
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(learns))
            if training:
                stack.enter_context(drawing(seed_of(self.random_key(self.site.batch_shard.index))))
            if self.context.dtype.name == "bfloat16":
                stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            output = self.module(*self._inputs)
        tensor_of(self.features[0].data).copy_(output.detach())
        self._output = output if learns else None
        if training and self.counters:
            self.state = tuple(counter.numpy().copy() for counter in self.counters)

    def backward(self, phase: Phase) -> None:
        assert self._output is not None
        trained = {name: weight for name, weight in self.weights.items() if weight.requires_grad}
        wanted = [x for x in self._inputs if x.requires_grad]
        gy = tensor_of(self.features[0].output_grad).to(self._output.dtype)
        found = self.torch.autograd.grad(self._output, [*trained.values(), *wanted], gy, allow_unused=True)
        self._output = None
        grads = dict(zip([*trained, *map(id, wanted)], found, strict=True))
        for name, param in zip(self.traits.params, self.params, strict=True):
            if name in self.statistics:
                # an update subtracts the gradient of a running statistic from its value
                self.torch.sub(tensor_of(param.data), self.statistics[name], out=tensor_of(param.grad))
            elif name in trained:
                write_grad(grads[name], param.grad)
        for x, source in zip(self._inputs, self.sources, strict=True):
            if source.grad is not None:
                write_grad(grads[id(x)], source.grad)
