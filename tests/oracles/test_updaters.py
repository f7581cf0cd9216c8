"""Update rules and learning-rate schedules against torch.optim, where both have the same formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import UpdaterConf
from singa_dask.conf.updater import LRGenConf
from singa_dask.training import SCHEDULES, UPDATERS
from tests.oracles.compare import TINY, assert_close, numbers, tensor

torch = pytest.importorskip("torch")
optim: Any = torch.optim
rates: Any = torch.optim.lr_scheduler

LR = 0.05
# Where the formulas place delta otherwise, it is too small to be seen: AdaGrad's and RMSProp's stand under the root.
MEMBERS: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "SGD": ({"type": "SGD"}, lambda w: optim.SGD(w, LR)),
    "SGD, decay": ({"type": "SGD", "weight_decay": 0.1}, lambda w: optim.SGD(w, LR, weight_decay=0.1)),
    "momentum": (
        {"type": "SGD", "momentum": 0.9, "weight_decay": 0.1},
        lambda w: optim.SGD(w, LR, momentum=0.9, weight_decay=0.1),
    ),
    "Nesterov": (
        {"type": "Nesterov", "momentum": 0.9, "weight_decay": 0.1},
        lambda w: optim.SGD(w, LR, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    # delta is what the sum of squares starts from
    "AdaGrad": (
        {"type": "AdaGrad", "delta": 0.1},
        lambda w: optim.Adagrad(w, LR, initial_accumulator_value=0.1, eps=0),
    ),
    "RMSProp": (
        {"type": "RMSProp", "delta": TINY, "rmsprop_conf": {"rho": 0.8}},
        lambda w: optim.RMSprop(w, LR, alpha=0.8, eps=0),
    ),
    "AdaDelta": (
        {"type": "AdaDelta", "delta": 1e-4, "adadelta_conf": {"rho": 0.8}},
        lambda w: optim.Adadelta(w, LR, rho=0.8, eps=1e-4),
    ),
    "Adam": (
        {"type": "Adam", "delta": 1e-3, "weight_decay": 0.1, "adam_conf": {"beta1": 0.8, "beta2": 0.95}},
        lambda w: optim.Adam(w, LR, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ),
    "AdamW": (
        {"type": "AdamW", "delta": 1e-3, "weight_decay": 0.1, "adam_conf": {"beta1": 0.8, "beta2": 0.95}},
        lambda w: optim.AdamW(w, LR, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ),
    "AdamMax": (
        {"type": "AdamMax", "delta": TINY, "adammax_conf": {"beta1": 0.8, "beta2": 0.95}},
        lambda w: optim.Adamax(w, LR, betas=(0.8, 0.95), eps=0),
    ),
}


@pytest.mark.parametrize("member", MEMBERS)
def test_twenty_updates(member: str) -> None:
    conf, theirs = MEMBERS[member]
    conf = UpdaterConf.model_validate({**conf, "learning_rate": {"type": "Fixed", "base_lr": LR}})
    updater = UPDATERS.find(conf.type)(conf)
    w, *grads = np.random.default_rng(0).normal(size=(21, 200))
    values = tensor(w)
    optimiser = theirs([values])
    state = {name: np.zeros_like(w) for name in updater.state_names}
    for t, grad in enumerate(grads):
        updater.update(t, t, w, grad, state)
        values.grad = tensor(grad, learns=False)
        optimiser.step()
        assert_close(w, numbers(values), f"after update {t + 1}")


F = 12
STEPS = range(40)
SCHEDULED: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "Fixed": ({"type": "Fixed"}, lambda o: rates.ConstantLR(o, factor=1)),
    "Step": (
        {"type": "Step", "step_conf": {"gamma": 0.3, "change_freq": F}},
        lambda o: rates.StepLR(o, step_size=F, gamma=0.3),
    ),
    "FixedStep": (
        {"type": "FixedStep", "fixedstep_conf": {"step": [0, 5, 30], "step_lr": [LR, LR / 10, LR / 100]}},
        lambda o: rates.MultiStepLR(o, [5, 30], gamma=0.1),
    ),
    "Linear": (
        {"type": "Linear", "linear_conf": {"change_freq": F, "final_lr": LR / 5}},
        lambda o: rates.LinearLR(o, start_factor=1, end_factor=1 / 5, total_iters=F),
    ),
    "Exponential": (
        {"type": "Exponential", "exponential_conf": {"change_freq": F}},
        lambda o: rates.ExponentialLR(o, gamma=0.5 ** (1 / F)),
    ),
    "Inverse": (
        {"type": "Inverse", "inverse_conf": {"gamma": 0.1, "pow": 0.75}},
        lambda o: rates.LambdaLR(o, lambda t: math.pow(1 + 0.1 * t, -0.75)),
    ),
    "InverseT": (
        {"type": "InverseT", "inverset_conf": {"final_lr": F}},
        lambda o: rates.LambdaLR(o, lambda t: F / (F + t)),
    ),
    # torch's goes up again after the last step of the cosine
    "Cosine": (
        {"type": "Cosine", "cosine_conf": {"change_freq": len(STEPS), "final_lr": LR / 50}},
        lambda o: rates.CosineAnnealingLR(o, len(STEPS), eta_min=LR / 50),
    ),
    "CosineRestarts": (
        {"type": "Cosine", "cosine_conf": {"change_freq": F, "final_lr": LR / 50, "restart_factor": 2}},
        lambda o: rates.CosineAnnealingWarmRestarts(o, F, T_mult=2, eta_min=LR / 50),
    ),
    "CosineOfOnePeriod": (
        {"type": "Cosine", "cosine_conf": {"change_freq": F, "restart_factor": 1}},
        lambda o: rates.CosineAnnealingWarmRestarts(o, F),
    ),
    "OneCycle": (
        {"type": "OneCycle", "onecycle_conf": {"change_freq": len(STEPS) + 1}},
        lambda o: rates.OneCycleLR(o, LR, total_steps=len(STEPS) + 1, cycle_momentum=False),
    ),
    "OneCycleOfMyOwn": (
        {
            "type": "OneCycle",
            "onecycle_conf": {
                "change_freq": len(STEPS) + 5,
                "rising_part": 0.5,
                "first_factor": 10,
                "final_factor": 100,
            },
        },
        lambda o: rates.OneCycleLR(
            o, LR, len(STEPS) + 5, pct_start=0.5, div_factor=10, final_div_factor=100, cycle_momentum=False
        ),
    ),
    "WarmUp": (
        {"type": "WarmUp", "warmup_conf": {"n_steps": F, "schedule": {"type": "Fixed", "base_lr": LR}}},
        lambda o: rates.LinearLR(o, start_factor=1 / F, end_factor=1, total_iters=F - 1),
    ),
}


@pytest.mark.parametrize("member", SCHEDULED)
def test_schedules(member: str) -> None:
    conf, theirs = SCHEDULED[member]
    schedule = SCHEDULES.find(conf["type"])(LRGenConf.model_validate({"base_lr": LR, **conf}))
    optimiser = optim.SGD([tensor(np.zeros(1))], LR)
    wanted = theirs(optimiser)
    for step in STEPS:
        assert_close(schedule(step), wanted.get_last_lr()[0], f"at step {step}")
        optimiser.step()
        wanted.step()


@pytest.mark.parametrize("velocity", ["gradients", "steps"])
def test_momentum_while_the_rate_changes(velocity: str) -> None:
    rate = {"type": "Step", "base_lr": LR, "step_conf": {"gamma": 0.5, "change_freq": 3}}
    block = {"type": "SGD", "momentum": 0.9, "sgd_conf": {"velocity": velocity}, "learning_rate": rate}
    updater = UPDATERS.find("SGD")(UpdaterConf.model_validate(block))
    w, *grads = np.random.default_rng(0).normal(size=(13, 20))
    values = tensor(w)
    optimiser = optim.SGD([values], LR, momentum=0.9)
    schedule = rates.StepLR(optimiser, 3, 0.5)
    state = {name: np.zeros_like(w) for name in updater.state_names}
    for t, grad in enumerate(grads):
        updater.update(t, t, w, grad, state)
        values.grad = tensor(grad, learns=False)
        optimiser.step()
        schedule.step()
        if velocity == "gradients" or t < 3:
            assert_close(w, numbers(values), f"after update {t + 1}")
    if velocity == "steps":
        assert np.abs(w - numbers(values)).max() > 0.01
