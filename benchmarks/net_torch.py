"""A contender: a net of a job file in PyTorch. ``python -m benchmarks.net_torch NET FORM``."""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.contender import CHECKED, NETS, Net, batch, first_values, serve, trained_layers

FORMS = ("eager", "channels_last", "compile", "compile_channels_last")
FORMS_BF16 = tuple(f"{form}_bf16" for form in FORMS)


class STanh(nn.Module):
    """SINGA's scaled tanh."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.7159047 * torch.tanh(0.66666667 * x)


def module(layer: dict[str, Any], shape: tuple[int, ...]) -> nn.Module:
    """Return one layer of a job file, for inputs of a shape."""
    kind = layer["type"]
    conf = next((value for key, value in layer.items() if key.endswith("_conf")), {})
    window = {"kernel_size": conf.get("kernel"), "stride": conf.get("stride"), "padding": conf.get("pad", 0)}
    if kind == "Convolution":
        return nn.Conv2d(shape[1], conf["num_filters"], **{**window, "stride": conf.get("stride", 1)})
    if kind == "Pooling":
        return (nn.MaxPool2d if conf["pool"] == "MAX" else nn.AvgPool2d)(**window)
    if kind == "LRN":
        return nn.LocalResponseNorm(conf["local_size"], conf["alpha"], conf["beta"], conf.get("knorm", 1))
    if kind == "BatchNorm":
        return nn.BatchNorm2d(shape[1])
    if kind == "InnerProduct":
        flat = nn.Linear(int(torch.tensor(shape[1:]).prod()), conf["num_output"])
        return flat if len(shape) == 2 else nn.Sequential(nn.Flatten(), flat)
    if kind == "Dropout":
        return nn.Dropout(conf["dropout_ratio"])
    return {"ReLU": nn.ReLU, "STanh": STanh}[kind]()


def build(net: Net) -> tuple[nn.Module, list[dict[str, Any]]]:
    """Return a net with first values, and groups of its params for an optimiser."""
    made, groups, x = (
        nn.Sequential(),
        dict[tuple[float, float], list[nn.Parameter]](),
        torch.empty(net.n_rows, *net.shape),
    )
    layers = [layer for layer in trained_layers(net) if layer["type"] != "SoftmaxLoss"]
    tensors: list[torch.Tensor] = []
    with torch.no_grad():
        for layer in layers:
            made.append(one := module(layer, tuple(x.shape)))
            x = one(x)
            own = list(one.parameters())
            for conf, param in zip(layer.get("param", ()), own, strict=False):
                groups.setdefault((conf.get("lr_scale", 1), conf.get("wd_scale", 1)), []).append(param)
            tensors += own if not isinstance(one, nn.BatchNorm2d) else [*own, one.running_mean, one.running_var]  # type: ignore[list-item]
        for tensor, values in zip(tensors, first_values(layers, [tuple(t.shape) for t in tensors]), strict=True):
            tensor.copy_(torch.from_numpy(values))
    scales = [{"params": params, "lr": lr, "weight_decay": wd} for (lr, wd), params in groups.items()]
    return made, scales


def optimiser(net: Net, groups: list[dict[str, Any]], **form: bool) -> torch.optim.Optimizer:
    """Return the job's SGD at the rate of its first step."""
    conf = net.job()["updater"]
    rate = conf["learning_rate"]
    lr = net.rate * (rate.get("base_lr") or rate["fixedstep_conf"]["step_lr"][0])
    decay = conf.get("weight_decay", 0)
    own = [{**g, "lr": lr * g["lr"], "weight_decay": decay * g["weight_decay"]} for g in groups]
    return torch.optim.SGD(own, lr=lr, momentum=conf.get("momentum", 0), **form)


def faster_optimiser(net: Net, model: nn.Module, groups: list[dict[str, Any]]) -> tuple[torch.optim.Optimizer, str]:
    """Return the job's SGD in the form that takes less time, and its name."""
    timed = []
    for form in ("foreach", "fused"):
        tried = optimiser(net, [{**g, "lr": 0.0} for g in groups], **{form: True})
        for param in model.parameters():
            param.grad = torch.zeros_like(param)
        best = min(_seconds(tried) for _ in range(5))
        timed.append((best, form))
    model.zero_grad()
    form = min(timed)[1]
    return optimiser(net, groups, **{form: True}), form


def _seconds(tried: torch.optim.Optimizer) -> float:
    started = time.perf_counter()
    tried.step()
    return time.perf_counter() - started


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("form", choices=FORMS + FORMS_BF16)
    given = parser.parse_args()
    net = NETS[given.net]
    model, groups = build(net)
    images, classes = batch(net)
    x, y = torch.from_numpy(images), torch.from_numpy(classes)
    if "channels_last" in given.form and x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sgd, form = faster_optimiser(net, model, groups)
    run = torch.compile(model) if "compile" in given.form else model

    def step() -> float:
        sgd.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in given.form):
            loss = functional.cross_entropy(run(x), y)
        loss.backward()
        sgd.step()
        return float(loss.detach())

    drops = {m: m.p for m in model.modules() if isinstance(m, nn.Dropout)}
    for drop in drops:
        drop.p = 0.0
    losses = [step() for _ in range(CHECKED)]
    for drop, p in drops.items():
        drop.p = p
    step()
    serve(losses, step, form)


if __name__ == "__main__":
    main()
