"""Random nets of all kinds of layers against PyTorch in float64: losses, gradients, steps; whole and partitioned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS
from tests.net.group import Group
from tests.net.jobs import job
from tests.oracles.compare import TOLERANCE, tensor
from tests.oracles.nets import Drawn, RandomNet
from tests.runtime.harness import ALLREDUCE, SINGLE, run_to_its_end

torch = pytest.importorskip("torch")
optim: Any = torch.optim


@pytest.fixture(autouse=True)
def known_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS._classes, "Drawn", Drawn)


class Twin:
    """The params of a net in PyTorch, at first those of a worker that has the whole net."""

    def __init__(self, made: RandomNet, group: Group) -> None:
        (net,) = group.nets
        self.made = made
        self.owners = {owner.name: owner for owner in net.owners}
        self.values = {name: tensor(owner.values.reshape(owner.shape)) for name, owner in self.owners.items()}
        self.divisors = {owner.name: net.gradient_divisor(owner.key) for owner in net.owners}
        self.params: dict[str, list[Any]] = {}
        for layer in net.layers:
            if layer.conf_name in made.formulas and layer.params:
                self.params[layer.conf_name] = [self.values[param.owner.name] for param in layer.params]

    def gradients(self, position: int) -> tuple[float, dict[str, Any]]:
        """Return the loss of a batch, and the gradients of the params that learn."""
        for value in self.values.values():
            value.grad = None
        shown, total = self.made.compute(lambda name: self.params.get(name, []), position)
        total.backward()
        for name, value in self.values.items():
            if self.owners[name].running_statistic:
                value.grad = None
            elif value.grad is not None:
                value.grad /= self.divisors[name]
        return shown.item(), {name: value.grad for name, value in self.values.items() if value.grad is not None}


def places(made: RandomNet, random: np.random.Generator, n_workers: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the layers of a net by records, by features, and each somewhere; a BatchNorm is always whole."""
    mixed = [[{"partition_dim": 0}, {"partition_dim": 1}, {"partition_dim": -1}, {"location": n_workers - 1}]]
    for where in ([{"partition_dim": 0}], [{"partition_dim": 1}], *mixed):
        drawn = [where[random.integers(len(where))] for _ in made.layers]
        yield [
            {**each, **({"partition_dim": -1} if each["type"] == "BatchNorm" else place)}
            for each, place in zip(made.layers, drawn, strict=True)
        ]


def check(seed: int) -> set[str]:
    """Compare a net with PyTorch and with itself on several workers; return what was refused."""
    made = RandomNet(seed)
    whole = job(made.layers)
    group = Group(whole, 1, rate=1.0)
    twin = Twin(made, group)
    before = {name: np.array(values) for name, values in group.values().items()}
    loss, gradients = twin.gradients(0)
    np.testing.assert_allclose(group.train(1)[0], loss, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"loss of {seed}")
    for name, values in group.values().items():
        if name in gradients:
            found, wanted = before[name] - values, gradients[name].numpy().reshape(values.shape)
            within = TOLERANCE * max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=within, err_msg=f"{name} of {seed}")
    refused = set()
    one = Group(whole, 1)
    losses = one.train(3)
    n_workers = 2 + seed % 2
    for layers in places(made, np.random.default_rng(seed), n_workers):
        try:
            several = Group(job(layers), n_workers)
        except ConfigError as error:
            refused.add(str(error))
            continue
        np.testing.assert_allclose(several.train(3), losses, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{seed}")
        values = several.values()
        for name, array in one.values().items():
            np.testing.assert_allclose(values[name], array, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{name} of {seed}")
    return refused


# -- updates ---------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """An updater, and its optimiser in PyTorch, of groups of params."""

    conf: dict[str, Any]
    optimiser: Callable[[Any], Any]


class ByFormula(optim.Optimizer):
    """Rules whose delta PyTorch has elsewhere: RMSProp with it below the root."""

    def __init__(self, groups: Any, rho: float, delta: float) -> None:
        super().__init__(groups, {"lr": 1.0, "weight_decay": 0.0})
        self.rho, self.delta = rho, delta

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for value in (each for each in group["params"] if each.grad is not None):
                g = value.grad + group["weight_decay"] * value.detach()
                mean = self.rho * self.state[value].get("mean", 0) + (1 - self.rho) * g**2
                self.state[value]["mean"] = mean
                value.data -= group["lr"] * g / (mean + self.delta).sqrt()


RULES = {
    "SGD": Rule({"type": "SGD"}, optim.SGD),
    "momentum": Rule({"type": "SGD", "momentum": 0.9}, lambda groups: optim.SGD(groups, momentum=0.9)),
    "momentum of gradients": Rule(
        {"type": "SGD", "momentum": 0.9, "sgd_conf": {"velocity": "gradients"}},
        lambda groups: optim.SGD(groups, momentum=0.9),
    ),
    "Nesterov": Rule(
        {"type": "Nesterov", "momentum": 0.8}, lambda groups: optim.SGD(groups, momentum=0.8, nesterov=True)
    ),
    "AdaGrad": Rule(
        {"type": "AdaGrad", "delta": 0.1}, lambda groups: optim.Adagrad(groups, initial_accumulator_value=0.1, eps=0)
    ),
    "AdaDelta": Rule(
        {"type": "AdaDelta", "delta": 1e-3, "adadelta_conf": {"rho": 0.8}},
        lambda groups: optim.Adadelta(groups, rho=0.8, eps=1e-3),
    ),
    "RMSProp": Rule(
        {"type": "RMSProp", "delta": 1e-2, "rmsprop_conf": {"rho": 0.8}},
        lambda groups: ByFormula(groups, rho=0.8, delta=1e-2),
    ),
    "Adam": Rule(
        {"type": "Adam", "delta": 1e-2, "adam_conf": {"beta1": 0.8, "beta2": 0.95}},
        lambda groups: optim.Adam(groups, betas=(0.8, 0.95), eps=1e-2),
    ),
    "AdamW": Rule(
        {"type": "AdamW", "delta": 1e-2, "adam_conf": {"beta1": 0.8, "beta2": 0.95}},
        lambda groups: optim.AdamW(groups, betas=(0.8, 0.95), eps=1e-2),
    ),
}


def check_updates(seed: int, name: str, url: str) -> None:
    """Compare three updates of a job, on one worker or two, with those of PyTorch."""
    made, random = RandomNet(seed), np.random.default_rng(seed)
    decay, clip, accumulate = random.choice([0, 0.1]), random.choice([0, 0.3]), int(random.integers(1, 4))
    lr, faster = 0.05, {"param": "*.0", "lr_scale": 0.5, "wd_scale": 2.0}
    slower = name == "momentum of gradients"
    how = {"step_conf": {"gamma": 0.5, "change_freq": 1}} if slower else {}
    rate = {"type": "Step" if slower else "Fixed", "base_lr": lr, **how}
    updater = {**RULES[name].conf, "learning_rate": rate, "weight_decay": float(decay), "clip_norm": float(clip)}
    updater |= {"accumulate": accumulate, "scales": [faster]}
    n_steps = 3 * accumulate
    cluster = ALLREDUCE if random.integers(2) and "BatchNorm" not in made.kinds else SINGLE
    whole = job(made.layers, updater=updater, train_steps=n_steps, precision="float64", seed=3, cluster=cluster)
    twin = Twin(made, Group(whole, 1))
    found = run_to_its_end(whole, url).params()
    groups = []
    for key, value in twin.values.items():
        factors = (0.5, 2.0) if key.endswith(".0") else (1.0, 1.0)
        groups.append({"params": [value], "lr": lr * factors[0], "weight_decay": float(decay) * factors[1]})
    optimiser = RULES[name].optimiser(groups)
    total: dict[str, Any] = {}
    for step in range(n_steps):
        _, gradients = twin.gradients(step)
        total = {key: total.get(key, 0) + grad.clone() / accumulate for key, grad in gradients.items()}
        if (step + 1) % accumulate:
            continue
        for key, grad in total.items():
            twin.values[key].grad = grad
        if clip:
            torch.nn.utils.clip_grad_norm_([twin.values[key] for key in total], float(clip))
        for group, key in zip(optimiser.param_groups, twin.values, strict=True):
            group["lr"] = lr * (0.5 if key.endswith(".0") else 1.0) * (0.5**step if slower else 1.0)
        optimiser.step()
        total = {}
    for key, value in twin.values.items():
        if not twin.owners[key].running_statistic:
            wanted = value.detach().numpy().reshape(found[key].shape)
            np.testing.assert_allclose(found[key], wanted, TOLERANCE, TOLERANCE, err_msg=f"{key} of {seed} by {name}")


N_NETS, N_PARTS = 200, 100


# the first two of each kind of net, then the soak
@pytest.mark.parametrize("part", [0, 1, 2, *(pytest.param(k, marks=pytest.mark.soak) for k in range(3, N_PARTS))])
def test_random_nets(part: int, tmp_path: Path) -> None:
    for seed in range(part, N_NETS, N_PARTS):
        check(seed)
        for k in range(3):
            check_updates(seed, [*RULES][(seed // 3 + 3 * k) % len(RULES)], str(tmp_path / f"{seed}-{k}"))
