"""Counts what a warm training step asks of a GPU: launches, bytes and waits of the host. No card is needed for it.

The simulated GPU of the tests takes the steps, as they are captured and replayed; a display would come on top. Ours are
kernels; a call of cuBLAS or cuDNN counts as one launch, though a card may need more than one kernel for it. CuDNN's
front end is the stand-in of ``tests/gpu/test_cudnn.py``: it takes each convolution by the first plan and computes
nothing. Bytes are those of the arrays that launches read and write, each once; those that an update, or the copies of
weights, find by a table are left out. Copies between host and device are no launches, and are told apart.
``PYTHONPATH=tests/simulated python -m benchmarks.launches [--what NET ...] [--precision NAME ...]``
"""

from __future__ import annotations

import argparse
import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import cupy

from benchmarks import gpu_nets, residual, residual_ours
from benchmarks.loop import Loop
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.ops.cupy import conv, cudnn
from singa_dask.training.captured_step import FIRST_STEPS
from tests.gpu.test_cudnn import FrontEnd, Graph

__all__ = ["NETS", "Step", "step_of"]

NETS = ("cifar-100", "resnet20", "transformer-4", "mlp-64")
PRECISIONS = ("float32", "tf32", "bf16")


class Step(NamedTuple):
    """What a step asks of a GPU: launches and bytes by kernel, copies from and to the host, and waits of the host."""

    launches: Counter[str]
    n_bytes: Counter[str]
    n_copies: int
    n_waits: int


def step_of(what: str, precision: str, small: bool = False) -> Step:
    """Return what a warm step of a net asks of a GPU; of a ``small`` batch kernels are run, otherwise only counted."""
    if not hasattr(cupy, "__simulated__"):
        raise RuntimeError("launches are counted on the simulated GPU. Set PYTHONPATH=tests/simulated.")
    from cupy import _world  # which CuPy itself does not have

    ops = get_ops(gpu_nets.DEVICE, precision)
    with _convolutions(_world), ops.activate():
        if not small:  # what is tried once is tried with values
            _loop(what, ops, precision, True).train()
            ops.synchronize()
        with contextlib.nullcontext() if small else _world.metered(runs=False):
            loop = _loop(what, ops, precision, small)
            for _ in range(FIRST_STEPS + 1):
                loop.train()
            assert loop.algorithm.n_captures == 1
            ops.synchronize()
            with _world.metered(runs=small) as meter:
                loop.train()
    found = [op for op in meter.ops if op.name != "memcpyAsync"]
    n_bytes = sum((Counter({op.name: op.n_bytes}) for op in found), Counter[str]())
    return Step(Counter(op.name for op in found), n_bytes, len(meter.ops) - len(found), meter.n_waits)


def _loop(what: str, ops: NumpyOps, precision: str, small: bool) -> Loop:
    """Return a net in one loop; ``transformer-4`` is the transformer with four of its five blocks."""
    if what != "transformer-4":
        return gpu_nets.loop_of(what, ops, precision, small)
    net = residual.NETS["transformer"]
    with tempfile.TemporaryDirectory() as folder:
        config, text = Path(folder, "transformer.yaml"), (residual.ROOT / "configs" / net.config).read_text()
        config.write_text(text.replace("repeat: 5", "repeat: 4"))
        net = net._replace(config=str(config), n_rows=gpu_nets.SMALL_ROWS if small else net.n_rows)
        return residual_ours.loop_of(net, ops, precision)


@contextlib.contextmanager
def _convolutions(world: Any) -> Iterator[None]:
    """Have convolutions enqueued by the stand-in for cuDNN, a launch each."""

    def enqueue(graph: Graph, addresses: dict[int, int], workspace: int, index: int, handle: Any) -> None:
        name = "+".join(operation for operation, *_ in graph.operations)
        arrays = [*graph.tensors.values(), graph.operations[-1][2].said]
        n_bytes = sum(math.prod(x["dim"]) * (2 if x["data_type"] == "BFLOAT16" else 4) for x in arrays)
        cupy.cuda.get_current_stream()._queue.put(world.Op(name, lambda: None, n_bytes=n_bytes))

    with (
        mock.patch.object(cudnn, "load", FrontEnd),
        mock.patch.object(Graph, "execute_plan_at_index", enqueue),
        mock.patch.object(conv, "MIN_PRODUCTS", 1 << 62),  # none is timed
    ):
        yield


def main() -> None:
    """Print a table for each net and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=[*NETS, *gpu_nets.NET_OF], default=list(NETS))
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["float32"])
    given = parser.parse_args()
    for what in given.what:
        for precision in given.precision:
            step = step_of(what, precision)
            total = f"{step.launches.total()} launches, {step.n_bytes.total() / 1e6:.1f} MB"
            print(f"{what} {precision}: {total}, {step.n_copies} copies, {step.n_waits} waits", flush=True)
            for name, n in step.launches.most_common():
                print(f"{n:8}  {name:32} {step.n_bytes[name] / 1e6:10.2f} MB")


if __name__ == "__main__":
    main()
