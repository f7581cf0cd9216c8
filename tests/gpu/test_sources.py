"""The sources in ops/cupy/cuda and the elementwise kernels compile for every combination of types, by CuPy's compiler.

NVRTC needs no GPU; ``pip install 'singa-dask[gpu-check]'`` brings it.
"""

from __future__ import annotations

import ctypes
import getpass
import hashlib
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.ops.cupy import updates
from singa_dask.ops.cupy.device import SOURCES, STANDARD, source
from singa_dask.ops.update_rules import SHIFT
from singa_dask.training import UPDATERS, updaters

ROOT = Path(__file__).parents[2]
FORMULAS = [updaters.PLAIN, updaters.MOMENTUM, updaters.ADAM, updaters.ADAM_OF_SINGA]
RULES = [SHIFT, *FORMULAS, *(cls.formula for cls in UPDATERS.classes() if hasattr(cls, "formula"))]
# Volta, Turing, Ampere, Hopper, Blackwell; the newest NVRTC knows Volta no more.
ARCHITECTURES = [
    "sm_75",
    *(pytest.param(each, marks=pytest.mark.soak) for each in ("sm_70", "sm_80", "sm_90", "sm_100")),
]
# For each kernel the compiler tells the registers that are kept in memory for want of room.
VERBOSE = "--ptxas-options=-v"
EXPECTED = ("ptxas", "nvrtc: warning: Architectures prior to")
KEPT = re.compile(r"[1-9]\d* bytes spill")
# What CuPy says to the compiler besides: float32 has no subnormal numbers then.
CUPYS_OPTIONS = ["-ftz=true", "--device-as-default-execution-space"]

FLOATS = ["float", "double", "bfloat16"]
INDEX = ["int", "long long"]
# (type of features, type of params)
MIXED = [("float", "float"), ("double", "double"), ("bfloat16", "float")]


def product(**values: Any) -> list[dict[str, Any]]:
    """Return all combinations; the names of some that go together are joined by ``_and_``."""
    combinations = []
    for chosen in itertools.product(*values.values()):
        pairs: dict[str, Any] = {}
        for names, value in zip(values, chosen, strict=True):
            parts = value if isinstance(value, tuple) else (value,)
            pairs.update(zip(names.split("_and_"), parts, strict=True))
        combinations.append(pairs)
    return combinations


# (type, values that a thread takes at once, type of indices); indices are large for very large images only
PACKS = [("float", 1), ("float", 2), ("float", 4), ("double", 1), ("double", 2)]
PACKS += [("bfloat16", 1), ("bfloat16", 2), ("bfloat16", 4), ("bfloat16", 8)]
LARGE = [("float", 4, "long long"), ("double", 2, "long long"), ("bfloat16", 8, "long long")]
INDEXED_PACKS = [*((*pack, "int") for pack in PACKS), *LARGE]
INDEXED = "Value_and_WIDTH_and_Index"
COMBINATIONS = {
    "columns": product(X_and_WIDTH=[*PACKS, ("unsigned char", 1)], Y=FLOATS),
    "crop": product(Record=["unsigned char", "float", "double"], Value=FLOATS, Index=INDEX),
    "group": product(Value_and_Param=MIXED),
    "im2col": product(Value_and_Element=[*MIXED, ("bfloat16", "bfloat16")]),
    "lrn": product(Value=FLOATS, Index=INDEX),
    "norm": [
        pack | {"Param": "double" if pack["Value"] == "double" else "float"}
        for pack in product(**{INDEXED: INDEXED_PACKS})
    ],
    "pool": [
        *product(**{INDEXED: INDEXED_PACKS}, Place=["unsigned char"]),
        *product(**{INDEXED: [("float", 2, "int"), ("double", 2, "int"), ("bfloat16", 4, "long long")]}, Place=["int"]),
    ],
    "random": product(T_and_P=[*((kind, kind) for kind in FLOATS), ("float", "bfloat16")]),
    "recurrent": product(Value=FLOATS),
    "row_norm": [
        *product(Value_and_Param=[("float", "float")], WIDTH=[1, 2, 4], PACKS=[1, 8]),
        *product(Value_and_Param=[("double", "double")], WIDTH=[1, 2], PACKS=[1, 8]),
        *product(Value_and_Param=[("bfloat16", "float")], WIDTH=[1, 2, 4], PACKS=[1, 8]),
    ],
    "rows": product(In_and_Out=[*MIXED, ("float", "bfloat16")], Index=["int", "long long"]),
    "softmax": product(X=FLOATS, Y_and_Z=[(kind, kind) for kind in FLOATS]),
    "softmax_rows": product(
        X=FLOATS, Y_and_Z=[(kind, kind) for kind in FLOATS], WIDTH_and_PACKS=[(1, 1), (2, 16), (4, 8)]
    ),
    "weights": product(In_and_Out=[*((kind, kind) for kind in FLOATS[:2]), ("float", "bfloat16")]),
    "sums": product(X=[*FLOATS, "unsigned char"], Y=FLOATS),
}


class Nvrtc:
    """The compiler; what it says is kept from run to run."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        major, minor = ctypes.c_int(), ctypes.c_int()
        assert library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
        self._version = f"{major.value}.{minor.value}"
        self._kept = Path(tempfile.gettempdir()) / f"nvrtc-{getpass.getuser()}"
        self._kept.mkdir(mode=0o700, exist_ok=True)

    def compile(self, code: str, options: list[str]) -> tuple[int, str]:
        """Compile a source, unless this has been done; returns the status, and what the compiler said."""
        key = hashlib.sha256("\0".join((self._version, *options, code)).encode()).hexdigest()[:32]
        kept = self._kept / f"{key}.json"
        if kept.exists():
            status, said = json.loads(kept.read_text())
            return status, said
        status, said = self._compile(code, options)
        with tempfile.NamedTemporaryFile("w", dir=self._kept, delete=False) as made:
            json.dump([status, said], made)
        os.replace(made.name, kept)
        return status, said

    def _compile(self, code: str, options: list[str]) -> tuple[int, str]:
        call, program, size = self._library, ctypes.c_void_p(), ctypes.c_size_t()
        assert call.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None) == 0
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = call.nvrtcCompileProgram(program, len(options), words)
            assert call.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
            said = ctypes.create_string_buffer(size.value)
            assert call.nvrtcGetProgramLog(program, said) == 0
        finally:
            call.nvrtcDestroyProgram(ctypes.byref(program))
        return status, said.value.decode()

    def architectures(self) -> list[str]:
        """Return the architectures that this version knows."""
        n = ctypes.c_int()
        assert self._library.nvrtcGetNumSupportedArchs(ctypes.byref(n)) == 0
        known = (ctypes.c_int * n.value)()
        assert self._library.nvrtcGetSupportedArchs(known) == 0
        return [f"sm_{number}" for number in known]


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    try:
        found = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"NVRTC is not installed: {str(error).splitlines()[0]}")
    return Nvrtc(ctypes.CDLL(found.abs_path))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(COMBINATIONS))
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_source_compiles(nvrtc: Nvrtc, architecture: str, name: str) -> None:
    if architecture not in nvrtc.architectures():
        pytest.skip(f"this NVRTC is not for {architecture}")
    for types in COMBINATIONS[name]:
        options = [STANDARD, *CUPYS_OPTIONS, VERBOSE, f"-arch={architecture}"]
        status, said = nvrtc.compile(source(name, **types), options)
        others = [line for line in said.splitlines() if not line.startswith(EXPECTED)]
        assert status == 0 and not others and not KEPT.search(said), f"{types}\n{said}"


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_rules_for_lists_compile(nvrtc: Nvrtc, architecture: str) -> None:
    for rule, dtype, differ in itertools.product(RULES, (np.float32, np.float64), (False, True)):
        code = updates.source_for_lists(updates.kernel_of(rule), np.dtype(dtype), differ)
        status, said = nvrtc.compile(code, [STANDARD, *CUPYS_OPTIONS, f"-arch={architecture}"])
        others = [line for line in said.splitlines() if line and not line.startswith(EXPECTED)]
        assert status == 0 and not others, f"{rule.name}\n{said}"


def test_all_sources_are_known() -> None:
    assert {path.stem for path in SOURCES.glob("*.cu")} == set(COMBINATIONS)


def test_sources_include_nothing() -> None:
    for path in SOURCES.iterdir():
        assert "#include" not in path.read_text(), path


@pytest.mark.long
def test_the_elementwise_kernels_compile(nvrtc: Nvrtc) -> None:
    """In a process that finds CuPy itself, which needs no GPU for this."""
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and "simulated" not in path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *given])}
    command = [sys.executable, "-m", "tests.gpu.elementwise"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if "No module named 'cupy'" in done.stderr:
        pytest.skip("CuPy is not installed")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"relu", "binary_cross_entropy", "adam", "add_bias"} <= {line["kernel"] for line in lines}
    assert not [line for line in lines if line["said"]]
