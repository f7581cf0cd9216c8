"""Convolutions by cuDNN: what is asked of it, what is kept, and who serves where it does not."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import BFLOAT16, NumpyOps
from singa_dask.ops.contract import ConvWindow
from singa_dask.ops.cupy import cudnn as cupy_cudnn
from tests.backends import backend
from tests.gpu import deviceless

STRIDE, PAD = (1, 1), (1, 1)


class Unsupported(Exception):
    """There is no plan."""


class Tensor:
    """An array of a graph: all that was said of it."""

    def __init__(self, **said: Any) -> None:
        self.said = said

    def __getattr__(self, name: str) -> Any:
        def say(value: Any) -> Tensor:
            self.said[name.removeprefix("set_")] = value
            return self

        return say


class Graph:
    """A graph of the stand-in for cuDNN: the operations asked for, and how it was run."""

    def __init__(self, cudnn: FrontEnd, **where: Any) -> None:
        self.cudnn, self.where = cudnn, where
        self.tensors: dict[int, dict[str, Any]] = {}
        self.operations: list[tuple[str, dict[str, Any], Tensor]] = []
        self.steps: list[str] = []
        self.unwanted: list[str] = []
        self.runs: list[tuple[dict[int, int], int, Any]] = []
        self.engines: list[str] = []
        self.built: list[int] = []

    def tensor(self, **said: Any) -> Tensor:
        self.tensors[said["uid"]] = said
        return Tensor(**said)

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self.unwanted = notes

    def get_execution_plan_count(self) -> int:
        return len(self.cudnn.engines)

    def get_plan_name_at_index(self, index: int) -> str:
        return self.cudnn.engines[index]

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[str]:
        return ["RUNTIME_COMPILATION"] if "compiled" in self.cudnn.engines[index] else []

    def build_plan_at_index(self, index: int) -> None:
        if "unbuilt" in self.cudnn.engines[index]:
            raise RuntimeError("no plan of this engine")
        self.built.append(index)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        assert index in self.built
        return 1000

    def execute_plan_at_index(self, addresses: dict[int, int], workspace: int, index: int, handle: Any) -> None:
        assert index in self.built
        if "broken" in self.cudnn.engines[index]:
            raise RuntimeError("no run of this engine")
        self.runs.append((addresses, workspace, handle))
        self.engines.append(self.cudnn.engines[index])

    def __getattr__(self, name: str) -> Any:
        def operation(*given: Any, **named: Any) -> Tensor:
            result = Tensor()
            if named:
                self.operations.append((name, named, result))
            else:
                self.steps.append(name)
                if name == "check_support" and self.cudnn.declines:
                    raise Unsupported("no engine")
            return result

        return operation


class Names:
    """Members of an enumeration: their names."""

    def __getattr__(self, name: str) -> str:
        return name


class FrontEnd:
    """A stand-in for the module ``cudnn``."""

    cudnnGraphNotSupportedError = Unsupported
    data_type = numerical_note = behavior_note = heur_mode = Names()

    def __init__(self, declines: bool = False) -> None:
        self.declines = declines
        self.engines = ["first", "second"]
        self.graphs: list[Graph] = []
        self.streams: list[tuple[str, int]] = []

    def create_handle(self) -> str:
        return "handle"

    def set_stream(self, handle: str, stream: int) -> None:
        self.streams.append((handle, stream))

    def backend_version_string(self) -> str:
        return "9"

    def pygraph(self, **where: Any) -> Graph:
        self.graphs.append(Graph(self, **where))
        return self.graphs[-1]


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch) -> FrontEnd:
    made = FrontEnd()
    monkeypatch.setattr(cupy_cudnn, "load", lambda: made)
    return made


def arrays(ops: Any, dtype: Any = np.float32, n: int = 2) -> SimpleNamespace:
    """Return device arrays for 3 channels of 6 x 5 pixels to 4 of the same size."""
    params = np.float64 if dtype == np.float64 else np.float32
    return SimpleNamespace(
        x=ops.features((n, 3, 6, 5), dtype),
        y=ops.features((n, 4, 6, 5), dtype),
        w=ops.zeros((4, 3, 3, 3), params),
        b=ops.zeros((4,), params),
    )


def test_what_a_graph_says(front_end: FrontEnd) -> None:
    ops = backend("cuda:0")
    a = arrays(ops)
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow((2, 1), (1, 0)))
    (graph,) = front_end.graphs
    assert front_end.streams == [("handle", ops.gpu.stream.ptr)] and graph.where["handle"] == "handle"
    shapes = {number: (said["dim"], said["stride"]) for number, said in graph.tensors.items()}
    assert shapes == {
        cupy_cudnn.IMAGES: ([2, 3, 6, 5], [90, 1, 15, 3]),
        cupy_cudnn.WEIGHTS: ([4, 3, 3, 3], [27, 1, 9, 3]),
        cupy_cudnn.BIAS: ([1, 4, 1, 1], [4, 1, 4, 4]),
    }
    assert {said["data_type"] for said in graph.tensors.values()} == {"FLOAT"}
    (convolution, how, _), (bias, _, out) = graph.operations
    assert (convolution, bias) == ("conv_fprop", "bias")
    assert (how["stride"], how["padding"], how["dilation"]) == ([2, 1], [1, 0], [1, 1])
    wanted = {"output": True, "data_type": "FLOAT", "dim": [2, 4, 6, 5], "stride": [120, 1, 20, 4]}
    assert out.said == wanted | {"uid": cupy_cudnn.OUTPUTS}
    ((addresses, workspace, handle),) = graph.runs
    assert addresses[cupy_cudnn.IMAGES] == a.x.data.ptr and addresses[cupy_cudnn.OUTPUTS] == a.y.data.ptr
    assert addresses[cupy_cudnn.BIAS] == a.b.data.ptr and set(addresses) == {1, 2, 3, 4}
    assert workspace and handle == "handle"


def test_a_graph_is_built_once_for_each_kind_shape_and_type(front_end: FrontEnd) -> None:
    ops = backend("cuda:0")
    a, other, narrow = arrays(ops), arrays(ops, n=3), arrays(ops, BFLOAT16)
    for _ in range(2):
        ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
        ops.conv2d(a.x, a.w, None, a.y, ConvWindow(STRIDE, PAD))
        ops.conv2d(other.x, a.w, a.b, other.y, ConvWindow(STRIDE, PAD))
        ops.conv2d(narrow.x, a.w, a.b, narrow.y, ConvWindow(STRIDE, PAD))
        ops.conv2d_grad_input(a.y, a.w, a.x, ConvWindow(STRIDE, PAD))
        ops.conv2d_grad_weight(a.x, a.y, a.w, a.b, ConvWindow(STRIDE, PAD))
        ops.conv2d_grad_weight(a.x, a.y, a.w, None, ConvWindow(STRIDE, PAD), accumulate=True)
    assert [(graph.operations[0][0], len(graph.runs)) for graph in front_end.graphs] == [
        *[("conv_fprop", 2)] * 4,
        ("conv_dgrad", 2),
        ("conv_wgrad", 4),
    ]
    assert ops.for_thread() is not ops
    ops.for_thread().conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
    assert len(front_end.graphs) == 7, "a handle belongs to a thread, and so do its graphs"


@pytest.mark.parametrize(
    ("precision", "dtype", "tensor_cores", "name"),
    [
        ("float32", np.float32, False, "FLOAT"),
        ("tf32", np.float32, True, "FLOAT"),
        ("bf16", BFLOAT16, True, "BFLOAT16"),
    ],
)
def test_precision(front_end: FrontEnd, precision: str, dtype: Any, tensor_cores: bool, name: str) -> None:
    ops = backend("cuda:0", precision)
    a = arrays(ops, dtype)
    ops.conv2d(a.x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
    (graph,) = front_end.graphs
    assert ("TENSOR_CORE" not in graph.unwanted) == tensor_cores
    assert {"NONDETERMINISTIC", "DOWN_CONVERT_INPUTS"} <= set(graph.unwanted)
    assert {said["data_type"] for said in graph.tensors.values()} == {name}
    assert graph.where["compute_data_type"] == graph.where["intermediate_data_type"] == "FLOAT"


def test_images_that_lie_otherwise_are_copied(front_end: FrontEnd) -> None:
    ops = backend("cuda:0")
    a = arrays(ops)
    plain, shifted = ops.zeros((2, 3, 6, 5), np.float32), ops.features((3, 3, 6, 5), np.float32)[1:]
    assert shifted.data.ptr % cupy_cudnn.ALIGNMENT
    for x in (plain, shifted):
        ops.conv2d(x, a.w, a.b, a.y, ConvWindow(STRIDE, PAD))
        addresses = front_end.graphs[0].runs[-1][0]
        assert addresses[cupy_cudnn.IMAGES] != x.data.ptr
        assert not any(address % cupy_cudnn.ALIGNMENT for address in addresses.values())
    assert len(front_end.graphs) == 1


def test_cublas_serves_where_cudnn_has_no_plan(front_end: FrontEnd, caplog: pytest.LogCaptureFixture) -> None:
    front_end.declines = True
    with caplog.at_level(logging.INFO, "singa_dask"):
        convolve_as_numpy_does(np.float32)
    said = [record.getMessage() for record in caplog.records if "no plan" in record.getMessage()]
    # forward with a bias and without
    assert len(said) == len(front_end.graphs) == 4


def test_float64_is_cublas(front_end: FrontEnd) -> None:
    convolve_as_numpy_does(np.float64)
    assert front_end.graphs == []


def test_it_is_said_once_that_cudnn_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> Any:
        raise cupy_cudnn.Missing("cuDNN is not there: of this test. Install 'singa-dask[cuda12]'.")

    monkeypatch.setattr(cupy_cudnn, "load", load)
    with caplog.at_level(logging.INFO, "singa_dask"):
        for _ in range(2):
            convolve_as_numpy_does(np.float32)
    (said,) = (record.getMessage() for record in caplog.records if "of this test" in record.getMessage())
    assert "singa-dask[cuda12]" in said and "slower" in said


def convolve_as_numpy_does(dtype: Any) -> None:
    random, shapes = np.random.default_rng(3), ((2, 3, 6, 5), (4, 3, 3, 3), (4,), (2, 4, 6, 5))
    given, results = [random.normal(size=shape).astype(dtype) for shape in shapes], []
    for ops in (NumpyOps(), backend("cuda:0")):
        x, w, b, y = (ops.from_host(value.copy()) for value in given)
        ops.conv2d_grad_weight(x, y, w, b, ConvWindow(STRIDE, PAD), accumulate=True)
        ops.conv2d_grad_input(y, w, x, ConvWindow(STRIDE, PAD))
        ops.conv2d(x, w, b, y, ConvWindow(STRIDE, PAD))
        results.append([ops.to_host(value) for value in (x, w, b, y)])
    for actual, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-3)


def test_load_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(cupy_cudnn.Missing, match=r"^cuDNN is not there: .* Install 'singa-dask\[cuda12\]' or "):
        cupy_cudnn.load()


def test_plans_without_a_device(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if importlib.util.find_spec("cudnn") is None or compiler is None:
        pytest.skip("nvidia-cudnn-frontend or a C compiler is not installed")
    for name, code in (("libcuda.so.1", deviceless.DRIVER), ("libcudart.so.12", deviceless.RUNTIME)):
        source = tmp_path / f"{name}.c"
        source.write_text(code)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / name, source], check=True)
    places = {"LD_LIBRARY_PATH": str(tmp_path), cupy_cudnn.RUNTIME: str(tmp_path / "libcudart.so.12")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.deviceless"],
        env={**os.environ, **places},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [plans["key"] for plans in found] == [wanted.key for wanted in deviceless.convolutions()]
    assert max(max(plans["sizes"]) for plans in found) <= cupy_cudnn.WORKSPACE_BYTES
    assert all(len(set(plans["names"])) == len(plans["names"]) for plans in found)
    assert all(plans["again"] == plans["names"][-1] for plans in found)
