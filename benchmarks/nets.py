"""A whole training step (forward, backward, update) of SINGA's nets: ours, beside every form of PyTorch.

Each contender is a process of its own, trains the same net from the same values on the same batch, and must find the
same losses in its first steps before it is timed, near them in bf16. They run in turn, some steps in each round.
``bf16`` is oneDNN with features in bfloat16, beside PyTorch's autocast; ``runtime`` is ours through the whole run time,
worker and server in one process.
``python -m benchmarks.nets [--net NAME ...] [--threads N ...] [--rounds N] [--steps N] [--limit S] [--ours FORM ...]
[--torch FORM ...]``
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from benchmarks.contender import NETS, Contender
from singa_dask.errors import ConfigError
from singa_dask.ops import get_ops

OURS = {"numpy": "net_ours", "onednn": "net_ours", "bf16": "net_ours", "runtime": "net_runtime"}
TORCH = ("eager", "channels_last", "compile", "compile_channels_last")
TORCH_BF16 = tuple(f"{form}_bf16" for form in TORCH)
TOLERANCE, TOLERANCE_BF16 = 1e-4, 5e-2


def check_losses(contenders: Mapping[str, Contender]) -> None:
    """End the benchmark where two contenders do not train the same net."""
    given = {name: np.array(one.last["losses"]) for name, one in contenders.items() if one.last["losses"]}
    wanted = given["eager"]
    for name, losses in given.items():
        tolerance = TOLERANCE_BF16 if "bf16" in name else TOLERANCE
        far = np.abs(losses - wanted) > tolerance * np.maximum(1, wanted)
        if far.any():
            sys.exit(f"{name}: losses {losses}, expected {wanted} as PyTorch has them: these are not the same nets.")


def match(net: str, threads: int, given: argparse.Namespace) -> None:
    """Time all contenders on a net, and print their lines of the table."""
    forms = [form for form in given.torch if len(NETS[net].shape) == 3 or "channels_last" not in form]
    with ExitStack() as stack:
        contenders = {}
        for form in [*forms, *given.ours]:
            module = OURS.get(form, "net_torch")
            contenders[form] = Contender(module, net, form, threads=threads)
            stack.callback(contenders[form].close)
            contenders[form].hear()
        check_losses(contenders)
        for _ in range(given.rounds):
            for one in contenders.values():
                one.round(given.steps, given.limit)
        show(net, threads, contenders, forms, given.ours)


def show(
    net: str, threads: int, contenders: Mapping[str, Contender], forms: Sequence[str], ours: Sequence[str]
) -> None:
    """Print a net's part of the table."""
    middle = {name: float(np.median(one.ms)) for name, one in contenders.items()}
    for name in [*forms, *ours]:
        one = contenders[name]
        best = min((form for form in forms if ("bf16" in form) == ("bf16" in name)), key=middle.__getitem__)
        ratio = np.median([b / a for a, b in zip(one.medians, contenders[best].medians, strict=True)])
        note = f"{ratio:6.2f}" if name in ours else "  best" if name == best else ""
        outside = f"   {one.last['outside']:.1%} of it outside kernels" if "outside" in one.last else ""
        print(
            f"{net:9} {threads:7}  {name:22} {middle[name]:8.1f} {note:7} {one.last['peak_mb']:7.0f}{outside}",
            flush=True,
        )


def ours_here() -> list[str]:
    """Return our forms that this machine can run."""
    try:
        get_ops("onednn", "bf16")
    except ConfigError as error:
        print(f"no bf16: {error}", file=sys.stderr)
        return [form for form in OURS if form != "bf16"]
    return list(OURS)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of one contender in a round, at most")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds after which it begins no other step")
    parser.add_argument("--ours", nargs="+", choices=OURS, default=ours_here())
    parser.add_argument("--torch", nargs="+", choices=TORCH + TORCH_BF16, default=list(TORCH))
    given = parser.parse_args()
    if "eager" not in given.torch:
        parser.error("--torch: eager is what the others are checked by.")
    if "bf16" in given.ours and not {*TORCH_BF16} & {*given.torch}:
        given.torch += TORCH_BF16
    print(
        f"cores: {len(os.sched_getaffinity(0))}; median ms of a step; times as fast as the best of PyTorch; peak memory"
    )
    print(f"{'net':9} {'threads':>7}  {'contender':22} {'ms':>8} {'ratio':7} {'MB':>7}")
    for net in given.net:
        for threads in given.threads:
            match(net, threads, given)


if __name__ == "__main__":
    main()
