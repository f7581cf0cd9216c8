"""CupyConv: convolution on a GPU, by cuDNN or by matrix products over unfolded images.

cuDNN is used if it is installed. Both ways need images that are dense in memory in the order N, H, W, C, as
`features` returns them. Other images are copied before or after. Weights are copied if they do not have the order F,
kh, kw, C and the dtype of the images. The first call for some shapes and types times the engines of cuDNN and the
matrix products, and stores the fastest; see `Choices`. cuDNN's heuristics alone are not enough: the fastest engine
can be several times as fast as their first proposal.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias

import cupy
import numpy as np

from singa_dask.errors import DeviceMemoryError
from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.contract import ConvWindow, Pair
from singa_dask.ops.cupy import cudnn
from singa_dask.ops.cupy.choices import choices_in, fastest, folder_of
from singa_dask.ops.cupy.cublas import workspace
from singa_dask.ops.cupy.device import Array, CupyDevice, elapsed, is_dense
from singa_dask.ops.cupy.elementwise import CupyElementwise
from singa_dask.ops.cupy.launch import THREADS, blocks, sum_type
from singa_dask.ops.cupy.linear import CupyLinear
from singa_dask.ops.cupy.weights import StepWeights
from singa_dask.ops.numpy.images import parts_of_groups
from singa_dask.ops.numpy.memory import channels_last

logger = logging.getLogger(__name__)

# Maximum bytes of unfolded images in one matrix product, which takes at least one image.
COLUMN_BYTES = 1 << 26

# Algorithms are timed only for convolutions with at least this many multiplications. Smaller convolutions take
# microseconds with any algorithm.
MIN_PRODUCTS = 1 << 20
# Name of matrix products, next to the names of cuDNN's plans.
PRODUCTS = "products"
# Number of runs in a timed graph; duration of one run in seconds from which a graph has fewer runs; number of
# launches of the graph; the time of the shortest launch is used.
RUNS, LONG_SECONDS, LAUNCHES = 4, 1e-3, 3
# (dtype, TF32) -> maximum relative error of a result: a few times the error that another order of summation makes.
# Some engines for large kernels have larger errors, and are rejected.
WITHIN = {(np.dtype(np.float32), False): 1e-4, (np.dtype(np.float32), True): 1e-3}
WITHIN |= dict.fromkeys([(BFLOAT16, False), (BFLOAT16, True)], 1e-2)
# Allowed time of one run on the host in addition to its time on the device.
HOST_SECONDS = 2e-4

# A plan of cuDNN, or None for matrix products over unfolded images.
Way: TypeAlias = "cudnn.CudnnPlan | None"

ADD_TO = cupy.ElementwiseKernel("T x", "P y", "y = y + (P)x", "add_to")


class CupyConv(CupyLinear, CupyElementwise):
    """Mixin of `CupyOps` with the kernels of convolution.

    Images are float32, float64 or bfloat16. If images are bfloat16, weights, bias and their gradients are float32;
    cuDNN then rounds weights, bias and the gradient of weights to bfloat16. Repeated calls give the same bits. cuDNN is
    never used for float64.
    """

    def __init__(self, gpu: CupyDevice, precision: str) -> None:
        super().__init__(gpu, precision)
        self._cudnn: cudnn.Cudnn | None = None
        self._looked_for_cudnn = False
        self._ways: dict[tuple[Any, ...], Way] = {}

    def conv2d(self, x: Array, w: Array, b: Array | None, out: Array, window: ConvWindow, relu: bool = False) -> None:
        x, y = self._taken("x", x, x.dtype), self._room_for_images("y", out)
        weights, how, groups = self._taken_weights(w, x.dtype), window[:3], window.groups

        def run(way: Way) -> Array:
            if way is None:
                for part, filters, bias, channels in parts_of_groups(groups, (x, 1), (weights, 0), (b, 0), (y, 1)):
                    source, target = (
                        self._made_dense("group x", part),
                        self._output_buffer("group y", channels, y.dtype),
                    )
                    for columns, images in self._unfolded(source, target, w.shape[2:], *how):
                        self.linear(columns, rows_of(filters), bias, out=pixels_of(images))
                    self._commit(target, channels)
            else:
                bias = {cudnn.BIAS: self._taken_weights(b, x.dtype)} if way.fused and b is not None else {}
                self._run_plan(way, {cudnn.IMAGES: x, cudnn.WEIGHTS: weights, cudnn.OUTPUTS: y} | bias)
                if way.fused:
                    return y
                if b is not None:
                    self.add(pixels_of(y), b, out=pixels_of(y))
            if relu:
                self.relu(pixels_of(y), out=pixels_of(y))
            return y

        run(self._timed_way(run, cudnn.FORWARD, x.shape, w.shape, y.shape, *how, x.dtype, b is not None, relu))
        if y is not out:
            self.copy(y, out=out)

    def conv2d_grad_input(self, gy: Array, w: Array, out: Array, window: ConvWindow) -> None:
        gy, gx = self._taken("gy", gy, gy.dtype), self._room_for_images("gx", out)
        weights, how = self._taken_weights(w, gy.dtype), window[:3]

        def run(way: Way) -> Array:
            if way is not None:
                self._run_plan(way, {cudnn.IMAGES: gx, cudnn.WEIGHTS: weights, cudnn.OUTPUTS: gy})
                return gx
            for part, filters, channels in parts_of_groups(window.groups, (gy, 1), (weights, 0), (gx, 1)):
                source, target = self._made_dense("group gy", part), self._output_buffer("group gx", channels, gx.dtype)
                for columns, images, g in self._pieces_of_columns(target, source, w.shape[2:], sum_type(gy.dtype)):
                    self.gemm(pixels_of(g), rows_of(filters), columns)
                    self._move_windows("fold", columns, images, g, w.shape[2:], *how)
                self._commit(target, channels)
            return gx

        run(self._timed_way(run, cudnn.GRAD_INPUT, out.shape, w.shape, gy.shape, *how, gy.dtype))
        if gx is not out:
            self.copy(gx, out=out)

    def conv2d_grad_weight(
        self, x: Array, gy: Array, out: Array, grad_bias: Array | None, window: ConvWindow, accumulate: bool = False
    ) -> None:
        x, gy, how = self._taken("x", x, x.dtype), self._taken("gy", gy, gy.dtype), window[:3]

        def run(way: Way) -> Array:
            dtype = sum_type(x.dtype) if way is None else x.dtype
            if accumulate or out.dtype != dtype or not can_take(out):
                total = self.scratch("conv weights", out.shape, dtype)
            else:
                total = out
            if way is not None:
                self._run_plan(way, {cudnn.IMAGES: x, cudnn.WEIGHTS: total, cudnn.OUTPUTS: gy})
                return total
            if not len(x):
                total[...] = 0
            for part, grads, weights in parts_of_groups(window.groups, (x, 1), (gy, 1), (total, 0)):
                source, target = self._made_dense("group x", part), self._made_dense("group gy", grads)
                for i, (columns, g) in enumerate(self._unfolded(source, target, out.shape[2:], *how)):
                    self.linear_grad_weight(columns, pixels_of(g), out=rows_of(weights), accumulate=i > 0)
            return total

        total = run(self._timed_way(run, cudnn.GRAD_WEIGHT, x.shape, out.shape, gy.shape, *how, x.dtype))
        if accumulate:
            ADD_TO(total, out)
        elif total is not out:
            self.copy(total, out=out)
        if grad_bias is not None:
            self.linear_grad_bias(pixels_of(gy), out=grad_bias, accumulate=accumulate)

    # -- memory ------------------------------------------------------------------------------------------

    def _taken(self, name: str, x: Array, dtype: Any) -> Array:
        """Return images, weights or a bias in a form that kernels accept: ``x``, or a copy in scratch memory."""
        if x.dtype == dtype and can_take(x):
            return x
        taken = self.scratch(f"conv {name}", x.shape, dtype)
        self.copy(x, out=taken)
        return taken

    def _taken_weights(self, w: Array, dtype: Any) -> Array:
        """Return weights or a bias in a form that kernels accept: ``w``, or the result of `copied_weights`."""
        return w if w.dtype == dtype and can_take(w) else self.copied_weights(w, dtype)

    def step_graph(self, run: Callable[[], None]) -> tuple[Any, list[StepWeights]]:
        """Return the CUDA graph of a step (see `graph_of`), and the objects that must live as long as the graph."""
        copies = {kinds: StepWeights(self, *kinds) for kinds in self._copied_kinds}

        def run_all() -> None:
            for each in copies.values():
                each.enqueue()
            run()

        self._step_weights = copies
        try:
            graph = self.graph_of(run_all)
        finally:
            self._step_weights = {}
        for each in copies.values():
            each.put()
        return graph, list(copies.values())

    def _room_for_images(self, name: str, out: Array) -> Array:
        """Return memory to which kernels can write images: ``out``, or scratch memory."""
        return out if can_take(out) else self.scratch(f"conv {name}", out.shape, out.dtype)

    # -- cuDNN -------------------------------------------------------------------------------------------

    def use_stream(self, stream: Any) -> None:
        """Enqueue cuDNN's work, which ignores the thread's current stream, on another stream from now on."""
        if self._cudnn is not None:
            self._cudnn.use_stream(stream.ptr)

    def graph_of(self, run: Callable[[], None]) -> Any:
        """Return the CUDA graph of the kernels that ``run`` enqueues. ``run`` must not allocate memory."""
        # allocate the workspace first, because nothing can be allocated during a capture
        workspace(self.gpu.index)
        # use a separate stream, so that work of other threads is not captured
        with cupy.cuda.Stream(non_blocking=True) as stream:
            self.use_stream(stream)
            try:
                stream.begin_capture()
                try:
                    run()
                finally:
                    # end_capture raises an error if an operation has invalidated the capture
                    graph = stream.end_capture()
            finally:
                self.use_stream(self.gpu.stream)
        return graph

    def _timed_way(self, run: Callable[[Way], Array], *wanted: Any) -> Way:
        """Return the algorithm for a `CudnnConvolution`.

        The first call with these fields chooses the algorithm, and may run all algorithms for this.
        """
        try:
            return self._ways[wanted]
        except KeyError:
            way = self._ways[wanted] = self._time_ways(
                cudnn.CudnnConvolution(*wanted, tf32=self.precision == "tf32"), run
            )
            return way

    def _time_ways(self, wanted: cudnn.CudnnConvolution, run: Callable[[Way], Array]) -> Way:
        """Return the fastest algorithm for a convolution: the stored choice, or the fastest of all in a trial.

        Small convolutions, and convolutions in a capture, are not timed.
        """
        if not self._looked_for_cudnn:
            self._looked_for_cudnn = True
            self._cudnn = find_cudnn(self.gpu)
        library = self._cudnn
        if library is None or wanted.dtype == np.float64 or not wanted.n_products:
            return None
        plans = library.plans(wanted)
        if wanted.n_products < MIN_PRODUCTS:
            return next(plans, None)
        choices = choices_in(folder_of(self.gpu.card, library.version))
        with choices.lock:
            name = choices.find(wanted.key)
            way = None if name in (None, PRODUCTS) else next(library.plans(wanted, name), None)
            if way is not None or name == PRODUCTS:
                return way
            if cupy.cuda.get_current_stream().is_capturing():
                return next(plans, None)
            choices.forget(wanted.key)
            with self._spare_scratch():
                error_of = self._error_from(run)

                def seconds(way: Way, limit: float) -> float:
                    error = error_of(run(way))
                    if not error <= WITHIN[wanted.dtype, wanted.tf32]:
                        raise RuntimeError(f"its result has an error of {error:.1e}")
                    return self._seconds(partial(run, way), limit)

                # time matrix products second, because the time limit may end before the last plan
                way = fastest(chain(islice(plans, 1), [None], plans), seconds)
            name = choices.keep(wanted.key, PRODUCTS if way is None else way.name)
            logger.info("ops: %s: %s", wanted.key, name)
            # build the plan again without the other plans; another process may have chosen a different plan
            return next(library.plans(wanted, name), None)

    def _error_from(self, run: Callable[[Way], Array]) -> Callable[[Array], float]:
        """Return a function that computes the relative error of a result, compared with matrix products."""
        try:
            products = run(None)
            expected, off = (self.scratch(name, products.shape, np.float32) for name in ("expected", "off"))
        except (MemoryError, DeviceMemoryError):
            return lambda result: 0.0
        self.copy(products, out=expected)
        size = float(self.to_host(self.sum_of("squares", expected))[0])

        def error_of(result: Array) -> float:
            self.subtract(result, expected, out=off)
            return math.sqrt(float(self.to_host(self.sum_of("squares", off))[0]) / size) if size else 0.0

        return error_of

    def _seconds(self, run: Callable[[], Any], limit: float) -> float:
        """Return the time that the device needs for the work that ``run`` enqueues.

        If the time exceeds the limit, the result is an estimate.
        """
        stream = self.gpu.stream
        # the first run loads kernels and allocates memory, which a capture cannot do
        run()
        once = elapsed(stream, run)
        if once > limit + HOST_SECONDS:
            return once
        n_runs = RUNS if once < LONG_SECONDS else 1

        def run_all() -> None:
            for _ in range(n_runs):
                run()

        # time a graph, because steps run as graphs too: the host enqueues short kernels more slowly than the device
        # runs them
        graph = self.graph_of(run_all)
        return min(elapsed(stream, partial(graph.launch, stream)) for _ in range(LAUNCHES)) / n_runs

    @contextlib.contextmanager
    def _spare_scratch(self) -> Iterator[None]:
        """Make kernels use other scratch memory during the context, which is freed afterwards."""
        kept, self._scratch, n_grown = self._scratch, {}, self.n_grown
        try:
            yield
        finally:
            self._scratch, self.n_grown = kept, n_grown

    def _run_plan(self, plan: cudnn.CudnnPlan, arrays: dict[int, Array]) -> None:
        assert self._cudnn is not None
        workspace = self.scratch("conv workspace", (plan.workspace_bytes,), np.uint8)
        addresses = {number: array.data.ptr for number, array in arrays.items()}
        self._cudnn.run(plan, addresses, workspace.data.ptr)

    # -- matrix products ---------------------------------------------------------------------------------

    def _unfolded(self, x: Array, y: Array, kernel: Pair, *how: Pair) -> Iterator[tuple[Array, Array]]:
        """Yield (values of the windows (n OH OW, kh kw C), images of y) for pieces of the batch."""
        for columns, images, windows in self._pieces_of_columns(x, y, kernel, x.dtype):
            self._move_windows("unfold", images, columns, windows, kernel, *how)
            yield columns, windows

    def _pieces_of_columns(self, x: Array, y: Array, kernel: Pair, dtype: Any) -> Iterator[tuple[Array, Array, Array]]:
        """Yield (memory for the values of windows, images of x, images of y) for pieces of the batch."""
        n_values = y.shape[2] * y.shape[3] * kernel[0] * kernel[1] * x.shape[1]
        n_images = max(1, COLUMN_BYTES // (n_values * np.dtype(dtype).itemsize))
        for images, windows in self.pieces(x, y, n_values=n_images * x[:1].size):
            columns = self.scratch("conv columns", (len(images) * n_values,), dtype)
            yield columns.reshape(-1, kernel[0] * kernel[1] * x.shape[1]), images, windows

    def _move_windows(
        self, name: str, source: Array, target: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair, dilation: Pair
    ) -> None:
        """Unfold images into columns, or fold columns into images.

        The windows are the windows of the images y.
        """
        images, columns = (source, target) if name == "unfold" else (target, source)
        run = self.gpu.function("im2col", name, Value=images.dtype, Element=columns.dtype)
        sizes = (*images.shape[1:], *y.shape[2:], *kernel, *stride, *pad, *dilation)
        run((blocks(target.size),), (THREADS,), (source, target, np.uint32(target.size), *map(np.int32, sizes)))


def find_cudnn(gpu: CupyDevice) -> cudnn.Cudnn | None:
    """Return cuDNN for this thread, or None if it cannot be used. The version of cuDNN is logged once."""
    try:
        with gpu.activate():
            library = cudnn.Cudnn(gpu.stream.ptr)
    except cudnn.Missing as missing:
        log_once(logging.WARNING, f"{missing} Until then, convolutions are slower: matrix products of unfolded images.")
        return None
    log_once(logging.INFO, f"ops: cuDNN {library.version}")
    return library


@functools.cache
def log_once(level: int, message: str) -> None:
    """Log a message once in this process."""
    logger.log(level, message)


def can_take(images: Array) -> bool:
    """Return whether kernels accept images, weights or a bias.

    The array must be dense in memory in the order N, H, W, C, and must have a suitable address.
    """
    return is_dense(images) and images.data.ptr % cudnn.ALIGNMENT == 0


def rows_of(weights: Array) -> Array:
    """Return a view (F, kh kw C) of weights that are in memory in the order F, kh, kw, C."""
    return channels_last(weights).reshape(len(weights), -1)


def pixels_of(images: Array) -> Array:
    """Return a view (N H W, C) of images that are in memory in the order N, H, W, C."""
    return channels_last(images).reshape(-1, images.shape[1])
