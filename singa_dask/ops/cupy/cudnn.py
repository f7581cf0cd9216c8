"""Cudnn: convolutions as graphs of cuDNN, and the plans that can run them. Needs no CuPy.

Functions take addresses instead of arrays. Images are dense in memory in the order N, H, W, C, weights in the order F,
kh, kw, C.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.contract import UNDILATED, Pair

logger = logging.getLogger(__name__)

EXTRAS = "'singa-dask[cuda12]' or 'singa-dask[cuda13]'"
# Kinds of convolutions.
FORWARD, GRAD_INPUT, GRAD_WEIGHT = "conv2d", "conv2d_grad_input", "conv2d_grad_weight"
# Ids of a graph's arrays. OUTPUTS is the result of the convolution, or the gradient of this result.
IMAGES, WEIGHTS, OUTPUTS, BIAS = 1, 2, 3, 4
WRITTEN = {FORWARD: OUTPUTS, GRAD_INPUT: IMAGES, GRAD_WEIGHT: WEIGHTS}

# Vector loads need addresses that are multiples of this number of bytes.
ALIGNMENT = 16
# Suffix of the name of a plan that omits the bias and ReLU.
APART = " apart"
# Maximum workspace of a plan.
WORKSPACE_BYTES = 1 << 30
# Environment variable with the path of the CUDA runtime; cuDNN's front end does not choose between two runtimes.
RUNTIME = "CUDNN_FRONTEND_CUDART_LIB_NAME"


class Missing(Exception):
    """CuDNN or its front end is not installed, or cannot be used."""


@dataclass(frozen=True)
class CudnnConvolution:
    """A convolution for which a graph is built.

    Parameters
    ----------
    kind : str
        `FORWARD`, `GRAD_INPUT` or `GRAD_WEIGHT`.
    images, weights, outputs : tuple of int
        Shapes (N, C, H, W), (F, C / groups, kh, kw), (N, F, OH, OW).
    stride, pad, dilation : pair of int
    dtype : dtype
        Dtype of all arrays: float32 or bfloat16. Sums are float32.
    biased, relu : bool
        For `FORWARD`: whether a bias (F,) is added, and whether negative results become 0.
    tf32 : bool
        Whether float32 factors may be rounded to 19 bits.
    """

    kind: str
    images: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    stride: Pair
    pad: Pair
    dilation: Pair
    dtype: np.dtype[Any]
    biased: bool = False
    relu: bool = False
    tf32: bool = field(default=False, kw_only=True)

    @property
    def key(self) -> str:
        """The fields as a text that can be the name of a file."""
        sizes = [self.images, self.weights, self.outputs, self.stride, self.pad]
        sizes += [] if self.dilation == UNDILATED else [self.dilation]
        names = ["x".join(map(str, numbers)) for numbers in sizes]
        flags = [name for name in ("biased", "relu", "tf32") if getattr(self, name)]
        return "_".join([self.kind, *names, self.dtype.name, *flags])

    @property
    def n_products(self) -> int:
        """Number of multiplications."""
        return math.prod(self.outputs) * math.prod(self.weights[1:])


@dataclass(frozen=True)
class CudnnPlan:
    """A plan with which cuDNN can compute a convolution.

    Attributes
    ----------
    graph : pygraph
        The graph, which all of its plans share.
    index : int
        Index of the plan in the graph.
    name : str
        Name of the engine and its settings. The same version of cuDNN on the same model of GPU always gives the same
        names.
    workspace_bytes : int
    fused : bool
        Whether the plan adds the bias and applies ReLU, if the convolution has them. Otherwise the caller has to.
    """

    graph: Any
    index: int
    name: str
    workspace_bytes: int
    fused: bool

    def __str__(self) -> str:
        return self.name


class Cudnn:
    """cuDNN for one thread, on one device and one stream.

    ``stream`` is the address of the stream for all work. Its device must be the current one.

    Raises
    ------
    Missing
        cuDNN cannot be used. The message says what to install.
    """

    def __init__(self, stream: int) -> None:
        self._cudnn = load()
        try:
            self._handle = self._cudnn.create_handle()
            self._cudnn.set_stream(self._handle, stream)
        except RuntimeError as error:
            raise Missing(f"cuDNN cannot be used: {error}. Install {EXTRAS}.") from error

    def use_stream(self, stream: int) -> None:
        """Enqueue on another stream from now on."""
        self._cudnn.set_stream(self._handle, stream)

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self._cudnn.backend_version_string())

    def plans(self, wanted: CudnnConvolution, name: str | None = None) -> Iterator[CudnnPlan]:
        """Yield the plans of a convolution; see `plans`."""
        return plans(self._cudnn, wanted, name, handle=self._handle)

    def run(self, plan: CudnnPlan, addresses: dict[int, int], workspace: int) -> None:
        """Enqueue a plan.

        ``addresses`` has the address of each array, by the array's id, e.g. `IMAGES`. Addresses must be multiples of
        `ALIGNMENT`. ``workspace`` is the address of the plan's workspace.
        """
        plan.graph.execute_plan_at_index(addresses, workspace, plan.index, handle=self._handle)


def load() -> Any:
    """Return cuDNN's front end, with the libraries that it needs loaded.

    Raises
    ------
    Missing
        cuDNN cannot be used. The message says what to install.
    """
    try:
        # wheels install libraries where the loader does not look; cuda.pathfinder, a dependency of CuPy, finds them
        find = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib
        find("cudnn")
        os.environ.setdefault(RUNTIME, find("cudart").abs_path)
        front_end = importlib.import_module("cudnn")
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise Missing(f"cuDNN is not there: {reason}. Install {EXTRAS}.") from error
    return front_end


def plans(cudnn: Any, wanted: CudnnConvolution, name: str | None = None, **where: Any) -> Iterator[CudnnPlan]:
    """Build and yield the plans of a convolution, in the order of cuDNN's heuristics.

    Plans that leave out the bias and ReLU come last. Each plan gives the same result in every run, and rounds no more
    than requested.

    Parameters
    ----------
    cudnn : module
        The front end.
    wanted : CudnnConvolution
    name : str, optional
        Yield only the plan with this name.
    **where
        ``handle``, or ``device_property`` to plan for a device that this machine does not have.
    """
    bare = replace(wanted, biased=False, relu=False)
    # fusing ReLU without a bias would need engines that take seconds to compile
    for part in dict.fromkeys([bare if wanted.relu and not wanted.biased else wanted, bare]):
        try:
            graph = outline(cudnn, part, **where)
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
            logger.info("ops: cuDNN has no plan of %s: %s", part, str(error).partition("\n")[0])
            continue
        yield from graph_plans(cudnn, graph, name, "" if part == wanted else APART)


def graph_plans(cudnn: Any, graph: Any, name: str | None, suffix: str) -> Iterator[CudnnPlan]:
    """Build and yield the plans of a graph, or only the plan with a name.

    Names of plans without the bias and ReLU have a suffix.
    """
    seen: set[str] = set()
    for index in range(graph.get_execution_plan_count()):
        engine = graph.get_plan_name_at_index(index) + suffix
        notes = graph.get_behavior_notes_for_plan_at_index(index)
        # engines that compile at run time take about a second, and are hardly ever the fastest
        slow = seen and cudnn.behavior_note.RUNTIME_COMPILATION in notes and name is None
        if engine in seen or slow or name not in (None, engine):
            continue
        try:
            graph.build_plan_at_index(index)
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError):
            continue
        seen.add(engine)
        yield CudnnPlan(graph, index, engine, graph.get_workspace_size_plan_at_index(index), not suffix)


def outline(cudnn: Any, wanted: CudnnConvolution, **where: Any) -> Any:
    """Return the graph of a convolution with the engines that may compute it.

    Raises
    ------
    cudnnGraphNotSupportedError, RuntimeError
        No engine can compute the convolution.
    """
    io = cudnn.data_type.BFLOAT16 if wanted.dtype == BFLOAT16 else cudnn.data_type.FLOAT
    wide = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=wide, compute_data_type=wide, **where)
    result = describe(graph, wanted, io)
    written = WRITTEN[wanted.kind]
    shape = {IMAGES: wanted.images, WEIGHTS: wanted.weights, OUTPUTS: wanted.outputs}[written]
    result.set_output(True).set_data_type(io).set_dim(list(shape)).set_stride(channels_last_steps(shape))
    result.set_uid(written)
    graph.validate()
    graph.build_operation_graph()
    modes = cudnn.heur_mode
    graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
    graph.deselect_numeric_notes(unwanted_notes(cudnn, wanted))
    graph.deselect_workspace_greater_than(WORKSPACE_BYTES)
    graph.check_support()
    return graph


def describe(graph: Any, wanted: CudnnConvolution, io: Any) -> Any:
    """Add the operations of a convolution to a graph; returns the result."""

    def array(number: int, shape: tuple[int, ...]) -> Any:
        steps = channels_last_steps(shape)
        return graph.tensor(name=f"array{number}", dim=list(shape), stride=steps, data_type=io, uid=number)

    how = {"padding": list(wanted.pad), "stride": list(wanted.stride), "dilation": list(wanted.dilation)}
    if wanted.kind == GRAD_WEIGHT:
        return graph.conv_wgrad(image=array(IMAGES, wanted.images), loss=array(OUTPUTS, wanted.outputs), **how)
    weights = array(WEIGHTS, wanted.weights)
    if wanted.kind == GRAD_INPUT:
        return graph.conv_dgrad(loss=array(OUTPUTS, wanted.outputs), filter=weights, **how)
    sums = graph.conv_fprop(image=array(IMAGES, wanted.images), weight=weights, **how)
    if wanted.biased:
        sums = graph.bias(input=sums, bias=array(BIAS, (1, wanted.outputs[1], 1, 1)))
    return graph.relu(input=sums) if wanted.relu else sums


def channels_last_steps(shape: tuple[int, ...]) -> list[int]:
    """Return the strides, in values, of images (N, C, H, W) with the dense memory order N, H, W, C."""
    _, channels, height, width = shape
    return [height * width * channels, 1, width * channels, channels]


def unwanted_notes(cudnn: Any, wanted: CudnnConvolution) -> list[Any]:
    """Return the notes of engines that must not be used.

    Their results vary from run to run, or they round more than requested.
    """
    note = cudnn.numerical_note
    notes = [note.NONDETERMINISTIC, note.DOWN_CONVERT_INPUTS, note.REDUCED_PRECISION_REDUCTION]
    if wanted.dtype == np.float32 and not wanted.tf32:
        # tensor cores round float32 to TF32; the larger tiles of Winograd lose about two digits
        notes += [note.TENSOR_CORE, note.FFT, note.WINOGRAD_TILE_6x6, note.WINOGRAD_TILE_13x13]
    return notes
