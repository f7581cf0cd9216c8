"""Training steps of PyTorch on a GPU, in one of its forms and in one precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks import char_rnn, char_rnn_torch, net_torch, residual, residual_torch
from benchmarks.contender import CHECKED, batch
from benchmarks.gpu_nets import benchmark_net
from benchmarks.gpu_steps import Runner

__all__ = ["runner"]

Loss = Callable[[], torch.Tensor]
# where there is no GPU all but graphs can be tried
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"


def runner(what: str, form: str, precision: str) -> Runner:
    """Return a contender that has found its first losses, and is warm."""
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    cast = partial(torch.autocast, DEVICE, torch.bfloat16, enabled=precision == "bf16")
    made = _text if what == "gru" else partial(_residual if what in residual.NETS else _net, what)
    loss, updater, clip, drops = made(form, cast)
    per_loss = {"gru": char_rnn.N_STEPS, "transformer": residual.NETS["transformer"].n_steps}.get(what, 1)

    wait = torch.cuda.synchronize if HAS_GPU else lambda: None

    def step() -> torch.Tensor:
        # other contenders have set these since
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        updater.zero_grad(set_to_none=True)
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        clip()
        updater.step()
        return value

    kept = {drop: drop.p for drop in drops}
    for drop in drops:
        drop.p = 0.0
    losses = [float(step().detach()) for _ in range(CHECKED)]
    for drop, p in kept.items():
        drop.p = p
    run: Callable[[], object] = _graph(step) if form == "graph" else step
    for _ in range(3):
        run()
    wait()
    # the loss of a text is told for a character, and learnt from as the sum over the text
    return Runner([each / per_loss for each in losses], run, wait)


def _graph(step: Callable[[], object]) -> Callable[[], object]:
    """Return what replays a step as a graph of CUDA."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay() -> None:
        graph.replay()

    # a graph does not hold the batch that it reads
    replay.step = step  # type: ignore[attr-defined]
    return replay


def _net(what: str, form: str, cast: Any) -> tuple[Loss, torch.optim.Optimizer, Callable[[], object], list[Any]]:
    """Return the loss of a net of a job file, and its updater."""
    net = benchmark_net(what, False)
    model, groups = net_torch.build(net)
    images, classes = batch(net)
    x, y = torch.from_numpy(images).to(DEVICE), torch.from_numpy(classes).to(DEVICE)
    model = model.to(DEVICE)
    if form != "eager" and x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last)
    run = torch.compile(model) if form == "compile" else model

    def loss() -> torch.Tensor:
        with cast():
            return functional.cross_entropy(run(x).float(), y)

    updater = net_torch.optimiser(net, groups, fused=True)
    return loss, updater, lambda: None, [m for m in model.modules() if isinstance(m, nn.Dropout)]


def _residual(what: str, form: str, cast: Any) -> tuple[Loss, torch.optim.Optimizer, Callable[[], object], list[Any]]:
    """Return the loss of ResNet-20 or the transformer, and its updater."""
    net = residual.NETS[what]
    model = residual_torch.build(net).to(DEVICE)
    records, labels = (torch.from_numpy(each).to(DEVICE) for each in residual.batch(net))
    x, y = (records[:, :-1], records[:, 1:].flatten()) if net.n_steps > 1 else (records, labels)
    if form != "eager" and x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last)
    run = torch.compile(model) if form == "compile" else model

    def loss() -> torch.Tensor:
        with cast():
            return functional.cross_entropy(run(x).flatten(0, -2).float(), y) * net.n_steps

    updater = residual_torch.optimiser(net, model, capturable=form == "graph")
    return loss, updater, lambda: None, []


def _text(form: str, cast: Any) -> tuple[Loss, torch.optim.Optimizer, Callable[[], object], list[Any]]:
    """Return the loss of a char-rnn, and its updater."""
    cells, last = (part.to(DEVICE) for part in char_rnn_torch.build("GRU"))
    params = [param for param in (*cells.parameters(), *last.parameters()) if param.requires_grad]
    updater = torch.optim.RMSprop(
        params, lr=char_rnn.RATE, alpha=char_rnn.RHO, eps=char_rnn.DELTA**0.5, foreach=True, capturable=form == "graph"
    )
    drawn = (torch.from_numpy(text.T.astype(np.int64)) for text in islice(char_rnn.windows(), char_rnn.N_WINDOWS))
    texts = cycle([text.pin_memory() if HAS_GPU else text for text in drawn])
    there = torch.zeros(char_rnn.N_STEPS + 1, char_rnn.N_ROWS, dtype=torch.int64, device=DEVICE)

    def both(x: torch.Tensor) -> torch.Tensor:
        states, _ = cells(x)
        return last(states)

    run = torch.compile(both) if form == "compile" else both

    def loss() -> torch.Tensor:
        if not (HAS_GPU and torch.cuda.is_current_stream_capturing()):  # a graph reads the same text again and again
            there.copy_(next(texts), non_blocking=True)
        with cast():
            scores = run(functional.one_hot(there[:-1], char_rnn.N_CHARS).float())
        return functional.cross_entropy(scores.float().flatten(0, 1), there[1:].flatten()) * char_rnn.N_STEPS

    return loss, updater, partial(nn.utils.clip_grad_value_, params, char_rnn.CLIP), []
