"""The choice between engines of cuDNN and matrix products: what is timed, what is chosen, and what is kept of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import DeviceMemoryError
from singa_dask.ops import BFLOAT16, NumpyOps
from singa_dask.ops.contract import ConvWindow
from singa_dask.ops.cupy import choices, conv
from singa_dask.ops.cupy import cudnn as cupy_cudnn
from singa_dask.ops.cupy.conv import WITHIN
from singa_dask.ops.cupy.cudnn import IMAGES, OUTPUTS, WEIGHTS
from tests.backends import backend
from tests.gpu.test_cudnn import PAD, STRIDE, FrontEnd, arrays, convolve_as_numpy_does

# Seconds that the ways of the stand-in for cuDNN take, and matrix products; others take as long as the first.
FIRST, FAST = 1e-3, 1e-4


class Times:
    """Times of ways by name, in place of those of a device; counts what is timed."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        self.timed: list[str] = []

    def seconds(self, run: Callable[[], Any]) -> float:
        assert isinstance(run, partial)
        run()
        (way,) = run.args
        name = conv.PRODUCTS if way is None else way.name
        self.timed.append(name)
        return self.of.get(name, FIRST)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Times:
    made = Times()
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(conv, "MIN_PRODUCTS", 0)
    # the stand-in for cuDNN computes no convolution
    monkeypatch.setattr(conv, "WITHIN", dict.fromkeys(conv.WITHIN, math.inf))
    monkeypatch.setattr(conv.CupyConv, "_seconds", lambda _, run, limit: made.seconds(run))
    return made


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch) -> FrontEnd:
    made = FrontEnd()
    monkeypatch.setattr(cupy_cudnn, "load", lambda: made)
    return made


@pytest.fixture(autouse=True)
def another_process() -> Iterator[None]:
    yield
    choices.choices_in.cache_clear()


def engine_run(front_end: FrontEnd) -> str:
    """Return the engine of the last graph."""
    return front_end.graphs[-1].engines[-1]


def new_process() -> NumpyOps:
    """Return kernels that know no choice but those in files."""
    choices.choices_in.cache_clear()
    return backend("cuda:0").for_thread()


# -- fastest ---------------------------------------------------------------------------------------------


def chosen(times: dict[str, Any]) -> str | None:
    def seconds(way: str, limit: float) -> float:
        if isinstance(times[way], Exception):
            raise times[way]
        taken: float = times[way]
        return taken

    return choices.fastest(times, seconds)


def test_the_first_is_preferred_by_a_margin() -> None:
    assert chosen({"first": 10.0, "second": 9.2, "third": 12.0}) == "first"
    assert chosen({"first": 10.0, "second": 9.0, "third": 8.0}) == "third"


def test_ways_that_fail_are_left_out() -> None:
    assert chosen({"first": RuntimeError(), "second": 3.0, "third": DeviceMemoryError(), "fourth": 1.0}) == "fourth"
    assert chosen({"first": RuntimeError(), "second": MemoryError()}) is None
    assert chosen({}) is None


def test_a_slow_way_is_known_by_one_run() -> None:
    limits = []

    def seconds(way: float, limit: float) -> float:
        limits.append(limit)
        return way

    assert choices.fastest([4.0, 2.0, 8.0], seconds) == 2.0
    assert limits == [math.inf, 12.0, 6.0, math.inf], "the first once more at the end"


def test_the_first_is_timed_again_as_the_clock_rises() -> None:
    first = iter([10.0, 5.0])
    assert choices.fastest(["first", "second"], lambda way, _: 5.0 if way == "second" else next(first)) == "first"


def test_no_more_ways_are_timed_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "MAX_SECONDS", -1.0)
    assert chosen({"first": 9.0, "second": 6.0, "third": 1.0}) == "second"


# -- choices of convolutions -----------------------------------------------------------------------------


def test_the_fastest_is_run_and_timed_once(front_end: FrontEnd, times: Times) -> None:
    front_end.engines = ["first", "second", "unbuilt", "third", "broken", "compiled", "third"]
    times.of = {"second": FAST, "third": 2 * FAST, "compiled": 0.0}
    ops = new_process()
    a = arrays(ops)
    for _ in range(2):
        ops.conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
        assert engine_run(front_end) == "second"
    assert times.timed == ["first", "products", "second", "third", "first"]
    ops.for_thread().conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
    new_process().conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
    assert engine_run(front_end) == "second" and len(times.timed) == 5, "another thread, and a later run"
    ops.conv2d_grad_weight(a.x, a.y, a.w, None, ConvWindow(STRIDE, PAD))
    assert len(times.timed) == 10, "another convolution"


def test_plans_without_the_bias(front_end: FrontEnd, times: Times) -> None:
    times.of = {"second apart": FAST}
    ops = new_process()
    a = arrays(ops)
    a.b = ops.from_host(np.array([1, -2, 3, -4], np.float32))
    for relu in (False, True):
        ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD), relu)
        # the stand-in computes no convolution
        a.y[...] = 0
        ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD), relu)
        assert ops.to_host(a.y)[0, :, 0, 0].tolist() == ([1, 0, 3, 0] if relu else [1, -2, 3, -4])
        assert set(front_end.graphs[-1].runs[-1][0]) == {1, 2, 3}
    assert times.timed[:6] == ["first", "products", "second", "first apart", "second apart", "first"]


def test_bias_and_relu_in_one_graph(front_end: FrontEnd) -> None:
    ops = new_process()
    a = arrays(ops)
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD), relu=True)
    ops.conv2d(a.x, a.w, None, a.y, ConvWindow(STRIDE, PAD), relu=True)
    with_bias, without = front_end.graphs
    assert [name for name, *_ in with_bias.operations] == ["conv_fprop", "bias", "relu"]
    assert [name for name, *_ in without.operations] == ["conv_fprop"]


@pytest.mark.parametrize("how", ["products are fastest", "engines fail", "all fail"])
def test_matrix_products(front_end: FrontEnd, times: Times, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "products are fastest":
        times.of = {conv.PRODUCTS: FAST}
    else:
        front_end.engines = ["broken", "broken 2"]
    if how == "all fail":
        monkeypatch.setattr(conv.CupyConv, "_seconds", fail)
    choices.choices_in.cache_clear()
    for _ in range(2):
        convolve_as_numpy_does(np.float32)
        choices.choices_in.cache_clear()


def test_engines_whose_results_are_wrong(front_end: FrontEnd, times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    number = {"conv_fprop": OUTPUTS, "conv_dgrad": IMAGES, "conv_wgrad": WEIGHTS}
    refused = []

    def run(ops: Any, plan: Any, given: dict[int, Any]) -> None:
        result = given[number[plan.graph.operations[0][0]]]
        ops.copy(ops.from_host(np.full(result.shape, np.nan if plan.name == "first" else 1, np.float32)), result)
        refused.append(plan.name)

    monkeypatch.setattr(conv, "WITHIN", WITHIN)
    monkeypatch.setattr(conv.CupyConv, "_run_plan", run)
    convolve_as_numpy_does(np.float32)
    assert {"first", "second"} <= set(refused) and set(times.timed) == {conv.PRODUCTS}


def fail(*_: Any) -> float:
    raise RuntimeError("out of order")


def test_small_convolutions_are_not_timed(front_end: FrontEnd, times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    times.of = {"second": FAST}
    monkeypatch.setattr(conv, "MIN_PRODUCTS", 1 << 20)
    ops = new_process()
    a = arrays(ops)
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
    assert engine_run(front_end) == "first" and times.timed == []


def test_nothing_is_timed_in_a_capture(front_end: FrontEnd, times: Times) -> None:
    times.of = {"second": FAST}
    ops = new_process()
    a = arrays(ops)

    def engine_captured() -> str:
        ops = backend("cuda:0").for_thread()
        ops.scratch("conv workspace", (1000,), np.uint8)
        ops.copied_weights(a.w, np.float32)
        ops.capture(lambda: ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD)))
        return engine_run(front_end)

    assert engine_captured() == "first" and times.timed == []
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
    assert engine_captured() == engine_run(front_end) == "second", "which is known by then"


def test_scratch_memory_of_other_ways_is_given_back(front_end: FrontEnd, times: Times) -> None:
    ops = new_process()
    a = arrays(ops)
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
    n_grown = ops.n_grown
    assert "conv columns" not in ops._scratch, "of the products"
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
    assert ops.n_grown == n_grown


# -- choices in files ------------------------------------------------------------------------------------


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "cudnn").glob("*/*"))


def test_a_file_says_what_was_chosen(front_end: FrontEnd, times: Times, tmp_path: Path) -> None:
    times.of = {"second": FAST}
    ops = new_process()
    a = arrays(ops)
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
    (file,) = files(tmp_path)
    assert file.name == "conv2d_2x3x6x5_4x3x3x3_2x4x6x5_1x1_1x1_float32_biased"
    assert file.parent.name.endswith("-cudnn-9") and file.read_text() == "second"


@pytest.mark.parametrize("content", [b"", b"an engine of yore", b"\xff\xfe"])
def test_a_broken_file_is_written_anew(front_end: FrontEnd, times: Times, tmp_path: Path, content: bytes) -> None:
    times.of = {"second": FAST}
    ops = new_process()
    a = arrays(ops)
    ops.conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
    (file,) = files(tmp_path)
    file.write_bytes(content)
    times.timed.clear()
    new_process().conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
    assert engine_run(front_end) == "second" and times.timed
    assert file.read_text() == "second"


def test_a_directory_that_cannot_be_written(front_end: FrontEnd, times: Times, tmp_path: Path) -> None:
    times.of = {"second": FAST}
    (tmp_path / "cache").write_text("a file")
    for _ in range(2):
        ops = new_process()
        a = arrays(ops)
        ops.conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
        ops.for_thread().conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
        assert engine_run(front_end) == "second"
    assert len(times.timed) == 8, "once in each process"


def test_the_choice_of_the_first_process_holds(tmp_path: Path) -> None:
    one, other = choices.Choices(tmp_path), choices.Choices(tmp_path)
    assert one.find("key") is None and other.find("key") is None
    assert one.keep("key", "first") == "first"
    assert other.keep("key", "second") == "first" == other.find("key")
    other.forget("key")
    assert other.find("key") is None and one.find("key") == "first"


# -- on a card ------------------------------------------------------------------------------------------

ON_CARD = [((8, 3, 20, 18), 32, 5, (1, 1), (2, 2)), ((8, 16, 20, 18), 16, 3, (1, 1), (1, 1))]
ON_CARD += [((8, 32, 21, 18), 64, 3, (2, 2), (1, 1)), ((16, 64, 12, 12), 128, 1, (2, 2), (0, 0))]


# of the largest value; float32 by TF32 is 4e-4 apart, by the tiles of Winograd that are allowed less
@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-4), ("tf32", 2e-3), ("bf16", 2e-2)])
@pytest.mark.parametrize(("shape", "filters", "size", "stride", "pad"), ON_CARD)
def test_every_engine(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    precision: str,
    tolerance: float,
    shape: Any,
    filters: int,
    size: int,
    stride: Any,
    pad: Any,
) -> None:
    """Each way to compute a convolution is right, repeats to the bit, and has the same bits in a CUDA graph."""
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    ways: list[conv.Way] = []

    def take_all(candidates: Any, seconds: Callable[[conv.Way, float], float]) -> None:
        for way in candidates:
            # what cannot be run, or is too far off, is never chosen
            with contextlib.suppress(RuntimeError):
                seconds(way, 0.0)
                ways.append(way)

    monkeypatch.setattr(conv, "fastest", take_all)
    ops: Any = backend("cuda:0", precision).for_thread()
    random, dtype = np.random.default_rng(5), BFLOAT16 if precision == "bf16" else np.dtype(np.float32)
    height, width = ((n + 2 * p - size) // s + 1 for n, p, s in zip(shape[2:], pad, stride, strict=True))
    shapes = {
        "x": shape,
        "y": (shape[0], filters, height, width),
        "w": (filters, shape[1], size, size),
        "b": (filters,),
    }
    host = {name: random.normal(size=of).astype(np.float32) for name, of in shapes.items()}
    x, y = ops.features(shapes["x"], dtype), ops.features(shapes["y"], dtype)
    w, b = ops.from_host(host["w"]), ops.from_host(host["b"])

    def results(kernels: Any, x: Any, y: Any, w: Any, b: Any) -> dict[str, Callable[[], Any]]:
        def forward(relu: bool) -> Any:
            kernels.conv2d(x, w, b, y, ConvWindow(stride, pad), relu=relu)
            return y

        def grad_input() -> Any:
            kernels.conv2d_grad_input(y, w, x, ConvWindow(stride, pad))
            return x

        def grad_weight() -> Any:
            kernels.conv2d_grad_weight(x, y, w, None, ConvWindow(stride, pad))
            return w

        kinds = {"forward": partial(forward, False), "relu": partial(forward, True)}
        return kinds | {"grad_input": grad_input, "grad_weight": grad_weight}

    def reset() -> None:
        for name, array in (("x", x), ("y", y), ("w", w)):
            ops.copy(ops.from_host(host[name]), array)

    on_device = results(ops, x, y, w, b)
    for kind in on_device:
        wide = {name: value.astype(np.float64) for name, value in host.items()}
        wanted = results(NumpyOps(), **wide)[kind]()
        ways.clear()
        ops._ways.clear()
        on_device[kind]()
        (key,) = ops._ways
        n_run = 0
        for way in ways:
            ops._ways[key] = way
            found = []
            # some cannot be run, or captured: those are never chosen
            with contextlib.suppress(RuntimeError):
                for captured in (False, False, True):
                    reset()
                    run = partial(ops.capture(on_device[kind]).replay, lambda key: key) if captured else on_device[kind]
                    run()
                    found.append(ops.to_host({"grad_input": x, "grad_weight": w}.get(kind, y)).astype(np.float32))
            if len(found) < 3:
                continue
            n_run += 1
            assert np.abs(found[0] - wanted).max() <= tolerance * np.abs(wanted).max(), (kind, str(way))
            np.testing.assert_array_equal(found[0], found[1], f"{kind} {way}")
            np.testing.assert_array_equal(found[0], found[2], f"{kind} {way}")
        assert n_run > 3
