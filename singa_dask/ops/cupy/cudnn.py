"""Cudnn: convolutions by cuDNN's graphs, built once for each kind and shape. Needs no CuPy.

It takes addresses, not arrays. Images and weights are dense in memory as N, H, W, C and as F, kh, kw, C.
"""

from __future__ import annotations

import importlib
import logging
import os
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from singa_dask.ops.onednn.library import BFLOAT16

__all__ = [
    "ALIGNMENT",
    "BIAS",
    "FORWARD",
    "GRAD_INPUT",
    "GRAD_WEIGHT",
    "IMAGES",
    "OUTPUTS",
    "WEIGHTS",
    "Convolution",
    "Cudnn",
    "Missing",
    "Plan",
    "build",
    "load",
]

LOG = logging.getLogger(__name__)

Pair: TypeAlias = tuple[int, int]

EXTRAS = "'singa-dask[cuda12]' or 'singa-dask[cuda13]'"
# Kinds of a convolution.
FORWARD, GRAD_INPUT, GRAD_WEIGHT = "conv2d", "conv2d_grad_input", "conv2d_grad_weight"
# The arrays of a graph by number. OUTPUTS is the result of the convolution, or the gradient of that.
IMAGES, WEIGHTS, OUTPUTS, BIAS = 1, 2, 3, 4
WRITTEN = {FORWARD: OUTPUTS, GRAD_INPUT: IMAGES, GRAD_WEIGHT: WEIGHTS}

# Vector loads need addresses that are multiples of this.
ALIGNMENT = 16
# The largest workspace of a plan.
WORKSPACE_BYTES = 1 << 30
# The front end reads the path of the CUDA runtime from here; it refuses to choose between two.
RUNTIME = "CUDNN_FRONTEND_CUDART_LIB_NAME"


class Missing(Exception):
    """CuDNN or its front end is not installed, or cannot be used."""


@dataclass(frozen=True)
class Convolution:
    """A convolution that a graph is built for.

    Parameters
    ----------
    kind : str
        `FORWARD`, `GRAD_INPUT` or `GRAD_WEIGHT`.
    images, weights, outputs : tuple of int
        Shapes (N, C, H, W), (F, C, kh, kw), (N, F, OH, OW).
    stride, pad : pair of int
    dtype : dtype
        Of all arrays: float32 or bfloat16. Sums are float32.
    biased : bool
        Forward: a bias (F,) is added.
    tf32 : bool
        Float32 factors may be rounded to 19 bits.
    """

    kind: str
    images: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    stride: Pair
    pad: Pair
    dtype: np.dtype[Any]
    biased: bool = False
    tf32: bool = False


@dataclass(frozen=True)
class Plan:
    """A graph that can be run, and the bytes of its workspace."""

    graph: Any
    workspace_bytes: int


class Cudnn:
    """CuDNN in one thread, on one device and one stream.

    Parameters
    ----------
    stream : int
        Address of the stream for all work; its device is current.

    Raises
    ------
    Missing
        Says what to install.
    """

    def __init__(self, stream: int) -> None:
        self._cudnn = load()
        try:
            self._handle = self._cudnn.create_handle()
            self._cudnn.set_stream(self._handle, stream)
        except RuntimeError as error:
            raise Missing(f"cuDNN cannot be used: {error}. Install {EXTRAS}.") from error
        self._plans: dict[tuple[Any, ...], Plan | None] = {}

    def use_stream(self, stream: int) -> None:
        """Enqueue on another stream from now on."""
        self._cudnn.set_stream(self._handle, stream)

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self._cudnn.backend_version_string())

    def plan(self, *wanted: Any) -> Plan | None:
        """Return the plan of a `Convolution` of these fields, built by the first call; None if cuDNN has none."""
        try:
            return self._plans[wanted]
        except KeyError:
            made = self._plans[wanted] = self._build(Convolution(*wanted))
            return made

    def _build(self, wanted: Convolution) -> Plan | None:
        try:
            return build(self._cudnn, wanted, handle=self._handle)
        except (self._cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            LOG.info("ops: %s is not cuDNN's, as it has no plan: %s: %s", wanted.kind, wanted, reason)
            return None

    def run(self, plan: Plan, addresses: dict[int, int], workspace: int) -> None:
        """Enqueue a plan.

        Parameters
        ----------
        plan : Plan
        addresses : dict
            Of its arrays by their number, all multiples of `ALIGNMENT`.
        workspace : int
            Address of the plan's workspace.
        """
        plan.graph.execute(addresses, workspace, handle=self._handle)


def load() -> Any:
    """Return cuDNN's front end, with the libraries that it needs loaded.

    Raises
    ------
    Missing
        Says what to install.
    """
    try:
        # wheels install libraries where the loader does not look; a dependency of CuPy knows the path
        find = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib
        find("cudnn")
        os.environ.setdefault(RUNTIME, find("cudart").abs_path)
        found = importlib.import_module("cudnn")
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise Missing(f"cuDNN is not there: {reason}. Install {EXTRAS}.") from error
    return found


def build(cudnn: Any, wanted: Convolution, **where: Any) -> Plan:
    """Build the graph of a convolution and the plan that the heuristics rank first.

    Parameters
    ----------
    cudnn : module
        The front end.
    wanted : Convolution
    **where
        ``handle``, or ``device_property`` to plan for a device that is not there.

    Raises
    ------
    cudnnGraphNotSupportedError
        There is no plan.
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
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.deselect_numeric_notes(unwanted_notes(cudnn, wanted))
    graph.deselect_workspace_greater_than(WORKSPACE_BYTES)
    graph.check_support()
    graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
    return Plan(graph, graph.get_workspace_size())


def describe(graph: Any, wanted: Convolution, io: Any) -> Any:
    """Add the operations of a convolution to a graph; returns the result."""

    def array(number: int, shape: tuple[int, ...]) -> Any:
        steps = channels_last_steps(shape)
        return graph.tensor(name=f"array{number}", dim=list(shape), stride=steps, data_type=io, uid=number)

    how = {"padding": list(wanted.pad), "stride": list(wanted.stride), "dilation": [1, 1]}
    if wanted.kind == GRAD_WEIGHT:
        return graph.conv_wgrad(image=array(IMAGES, wanted.images), loss=array(OUTPUTS, wanted.outputs), **how)
    weights = array(WEIGHTS, wanted.weights)
    if wanted.kind == GRAD_INPUT:
        return graph.conv_dgrad(loss=array(OUTPUTS, wanted.outputs), filter=weights, **how)
    sums = graph.conv_fprop(image=array(IMAGES, wanted.images), weight=weights, **how)
    if not wanted.biased:
        return sums
    return graph.bias(input=sums, bias=array(BIAS, (1, wanted.outputs[1], 1, 1)))


def channels_last_steps(shape: tuple[int, ...]) -> list[int]:
    """Return the strides in values of (N, C, H, W) that lies as N, H, W, C without gaps."""
    _, channels, height, width = shape
    return [height * width * channels, 1, width * channels, channels]


def unwanted_notes(cudnn: Any, wanted: Convolution) -> list[Any]:
    """Return what engines may not do: vary from run to run, or round more than asked for."""
    note = cudnn.numerical_note
    notes = [note.NONDETERMINISTIC, note.DOWN_CONVERT_INPUTS, note.REDUCED_PRECISION_REDUCTION]
    if wanted.dtype == np.float32 and not wanted.tf32:
        # tensor cores round float32 to TF32; the larger tiles of Winograd lose about two digits
        notes += [note.TENSOR_CORE, note.FFT, note.WINOGRAD_TILE_6x6, note.WINOGRAD_TILE_13x13]
    return notes
