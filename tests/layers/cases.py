"""Cases: how each layer is tested on every backend and in every net.

A test file of this room lists them as ``CASES``. Each is computed with its gradients, by oneDNN, by a GPU, in bfloat16
and by the workers of a group, and compared with NumPy on one worker.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import tests.layers
from singa_dask.layers import Context, Layer
from singa_dask.ops import NumpyOps
from tests.layers.exam import CPU, source, wire

__all__ = ["Case", "all_cases", "made", "shown"]


class Case(NamedTuple):
    """A layer to be computed.

    Attributes
    ----------
    kind : str
        Its type.
    shapes : sequence of tuple of int
        Of its sources.
    conf : dict or None
        Further keys of the layer.
    n_steps : int
        Time steps in the rows of its sources.
    labels : sequence of int or None
        Of the sources.
    fixed : int
        How many sources, the last ones, have no gradient.
    kink : float
        Least distance of the sources' values from 0.
    """

    kind: str
    shapes: Sequence[tuple[int, ...]]
    conf: dict[str, Any] | None = None
    n_steps: int = 1
    labels: Sequence[int] | None = None
    fixed: int = 0
    kink: float = 0.0


def all_cases() -> list[Case]:
    """Return the cases of all test files of this room."""
    names = sorted(info.name for info in pkgutil.iter_modules(tests.layers.__path__) if info.name.startswith("test_"))
    modules = [importlib.import_module(f"tests.layers.{name}") for name in names]
    return [case for module in modules for case in getattr(module, "CASES", [])]


def shown(case: Case) -> str:
    """Return the id of a test of a case."""
    return f"{case.kind} {'+'.join('x'.join(map(str, shape)) for shape in case.shapes)}"


def made(case: Case, ops: NumpyOps = CPU, recurrent: bool = False, dtype: Any = np.float64) -> Layer:
    """Return the layer of a case, wired to made-up sources. The second source of a recurrent one is its first state."""
    n_learnt = len(case.shapes) - case.fixed
    sources = [
        source(shape, k, kink=case.kink, grad=k < n_learnt, labels=case.labels, ops=ops, dtype=dtype)
        for k, shape in enumerate(case.shapes)
    ]
    for k, each in enumerate(sources):
        each.n_steps = 1 if k and recurrent else case.n_steps
    context = Context(dtype=np.dtype(dtype), seed=3, step=7)
    return wire(case.kind, sources, context, case.n_steps, ops, **(case.conf or {}))
