"""Update rules: SINGA's numbers, the papers' numbers, any slicing the same bits, and that they learn."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.conf import UpdaterConf
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import ArrayList
from singa_dask.testing import check_updater
from singa_dask.training import UPDATERS, Updater
from tests.backends import BACKENDS, backend
from tests.selection import few_examples

Array = np.ndarray[Any, Any]
PIECE = NumpyOps.update_values
SINGA = {"bias_correction": False}
# Everything that changes the order of steps is on in the contract tests.
MEMBERS: dict[str, dict[str, Any]] = {
    "SGD": {},
    "SGD with momentum": {"momentum": 0.9},
    "SGD with momentum of gradients": {"momentum": 0.9, "sgd_conf": {"velocity": "gradients"}},
    "Nesterov": {"momentum": 0.9},
    "AdaGrad": {},
    "RMSProp": {"rmsprop_conf": {"rho": 0.9}},
    "AdaDelta": {},
    "Adam": {},
    "Adam of SINGA": {"adam_conf": SINGA},
    "AdamW": {},
    "AdamMax": {},
    "AdamMax of SINGA": {"adammax_conf": SINGA},
}
COMPILED = ("SGD with momentum", "Adam", "Halved")  # whose kernels are compiled for lists in plain tests too
RATES = {"AdaGrad": 0.5, "AdaDelta": 10.0, "RMSProp": 0.01, "Lion": 0.01}


def make(member: str, lr: float = 0.1, **conf: Any) -> Updater:
    kind = member.split()[0]
    rate = {"type": "Fixed", "base_lr": lr}
    made = UpdaterConf.model_validate({"type": kind, "learning_rate": rate, **MEMBERS.get(member, {}), **conf})
    return UPDATERS.find(kind)(made)


def zeros(updater: Updater, like: Array) -> dict[str, Array]:
    return {name: np.zeros_like(like) for name in updater.state_names}


def run(updater: Updater, w: Array, grads: list[Array], cuts: tuple[int, ...] = (), **more: Any) -> Array:
    """Return the value after one update a gradient, made in the slices between ``cuts``."""
    w = w.copy()
    bounds = [0, *sorted({min(cut, w.size) for cut in cuts}), w.size]
    state = zeros(updater, w)
    for t, grad in enumerate(grads):
        grad.flags.writeable = False
        for a, b in pairwise(bounds):
            piece = {name: values[a:b] for name, values in state.items()}
            updater.update(t, t, w[a:b], grad[a:b], piece, **more)
    return w


@pytest.mark.parametrize(
    ("kind", "conf", "first", "second"),
    [
        ("SGD", {"momentum": 0.9, "weight_decay": 0.01}, 0.949, 0.927151),
        ("Nesterov", {"momentum": 0.9}, 0.905, 0.912),
        ("AdaGrad", {}, 0.9, 0.94472136),
        ("RMSProp", {"rmsprop_conf": {"rho": 0.9}}, 0.6837723, 0.83121423),
        ("AdaDelta", {}, 0.99996838, 0.99998923),
        ("Adam", {"adam_conf": SINGA}, 0.68377856, 0.570598),
        ("AdamMax", {"adammax_conf": SINGA}, 0.99, 0.985996),
    ],
)
def test_numbers_of_singa(kind: str, conf: dict[str, Any], first: float, second: float) -> None:
    grads = [np.array([0.5]), np.array([-0.25])]
    updater = make(kind, **conf)
    assert run(updater, np.ones(1), grads[:1])[0] == pytest.approx(first, abs=1e-7)
    assert run(updater, np.ones(1), grads)[0] == pytest.approx(second, abs=1e-6)


def test_adam_and_adamax_of_the_paper() -> None:
    grads = [np.array([0.5]), np.array([-0.25])]
    m1, v1 = 0.05, 0.00025
    w1 = 1 - 0.1 * (m1 / 0.1) / (np.sqrt(v1 / 0.001) + 1e-8)
    m2, v2 = 0.9 * m1 - 0.025, 0.999 * v1 + 0.001 * 0.0625
    w2 = w1 - 0.1 * (m2 / (1 - 0.81)) / (np.sqrt(v2 / (1 - 0.999**2)) + 1e-8)
    adam = make("Adam")
    assert run(adam, np.ones(1), grads[:1])[0] == pytest.approx(w1, abs=1e-12)
    assert run(adam, np.ones(1), grads)[0] == pytest.approx(w2, abs=1e-12)
    u2 = max(0.999 * 0.5, 0.25)
    w1 = 1 - 0.1 / 0.1 * m1 / 0.5
    w2 = w1 - 0.1 / (1 - 0.81) * m2 / u2
    adamax = make("AdamMax")
    assert run(adamax, np.ones(1), grads[:1])[0] == pytest.approx(w1, abs=1e-7)
    assert run(adamax, np.ones(1), grads)[0] == pytest.approx(w2, abs=1e-7)


def test_adamw_of_the_paper() -> None:
    w, decay = run(make("AdamW", weight_decay=0.5), np.ones(1), [np.array([0.5])]), 0.1 * 0.5
    assert w[0] == pytest.approx(1 - decay - 0.1 * 0.5 / (0.5 + 1e-8), abs=1e-12)


def test_a_rule_around_a_built_in_one_is_called() -> None:
    class Halved(UPDATERS.find("SGD")):  # type: ignore[misc]
        def rule(self, w: Array, g: Array, lr: float, t: int, state: Any, tmp: Array, tmp2: Array) -> None:
            super().rule(w, g, lr / 2, t, state, tmp, tmp2)

    conf = UpdaterConf.model_validate({"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}})
    assert run(Halved(conf), np.ones(1), [np.ones(1)])[0] == pytest.approx(0.95)


def test_adagrad_honours_delta() -> None:
    w = run(make("AdaGrad", delta=0.75), np.ones(1), [np.array([0.5])])
    assert w[0] == pytest.approx(1 - 0.1 * 0.5 / 1.0)


@pytest.mark.parametrize("member", MEMBERS)
def test_average_then_clip_then_decay(member: str) -> None:
    conf = {"clip_low": -1.0, "clip_high": 0.5, "weight_decay": 0.1}
    grads = [np.array([4.0, -4.0, 0.25]), np.array([-0.5, 3.0, -2.0])]
    seen = make(member, **conf)
    plain = make(member)
    w, by_hand = np.array([1.0, -2.0, 0.5]), np.array([1.0, -2.0, 0.5])
    state, other = zeros(seen, w), zeros(plain, w)
    for t, grad in enumerate(grads):
        decay = 0.1 * 3.0 * by_hand
        wanted = np.clip(grad / 4, -1.0, 0.5) + (0.0 if seen.decoupled_decay else decay)
        if seen.decoupled_decay:
            by_hand -= 0.1 * 2.0 * decay
        seen.update(t, t, w, grad, state, n_sharers=4, lr_scale=2.0, wd_scale=3.0)
        plain.update(t, t, by_hand, wanted, other, lr_scale=2.0)
        np.testing.assert_allclose(w, by_hand, rtol=1e-12)


@pytest.mark.parametrize("member", MEMBERS)
@few_examples(20)
@given(cuts=st.lists(st.integers(0, 300), max_size=4), seed=st.integers(0, 9))
def test_slicing_never_changes_a_bit(member: str, cuts: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    w = random.normal(size=300).astype(np.float32)
    grads = [random.normal(size=300).astype(np.float32) for _ in range(3)]
    updater = make(member, weight_decay=0.01, clip_low=-2.0, clip_high=2.0)
    whole = run(updater, w, grads, n_sharers=3)
    np.testing.assert_array_equal(run(updater, w, grads, tuple(cuts), n_sharers=3), whole)


@pytest.mark.parametrize("member", [*MEMBERS, "Lion"])
def test_every_member_passes_the_exam(member: str) -> None:
    check_updater(member.split()[0], MEMBERS.get(member), learning_rate=RATES.get(member, 0.05))


@pytest.mark.parametrize("member", MEMBERS)
def test_what_diverges_warns_of_nothing(member: str) -> None:
    w = run(make(member, 1e30), np.full(4, 1e30, np.float32), [np.full(4, 1e38, np.float32)] * 3)
    assert w.dtype == np.float32


def test_an_empty_slice_is_no_trouble() -> None:
    run(make("SGD"), np.empty(0), [np.empty(0)])


def test_the_rate_follows_the_step_and_not_the_number_of_updates() -> None:
    rate = {"type": "Step", "base_lr": 1.0, "step_conf": {"gamma": 0.5, "change_freq": 10}}
    updater = UPDATERS.find("SGD")(UpdaterConf.model_validate({"type": "SGD", "learning_rate": rate}))
    w = np.zeros(1)
    updater.update(25, 0, w, np.ones(1), {})
    assert w[0] == -0.25


class Halved(UPDATERS.find("Adam")):  # type: ignore[misc]
    """A rule of a user's around a built-in one."""

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Any, tmp: Array, tmp2: Array) -> None:
        before = w.copy()
        super().rule(w, g, lr, t, state, tmp, tmp2)
        np.subtract(w, before, out=tmp)
        np.multiply(tmp, 0.5, out=tmp)
        np.add(before, tmp, out=w)


def test_a_rule_of_a_user_around_a_built_in_one() -> None:
    conf = {"clip_low": -1.0, "clip_high": 1.0, "weight_decay": 0.5}
    adam = make("Adam", **conf)
    w, grads = np.ones(PIECE + 3), [np.full(PIECE + 3, 3.0)]
    whole = run(adam, w, grads, n_sharers=3)
    np.testing.assert_allclose(run(Halved(adam.conf), w, grads, n_sharers=3), (w + whole) / 2, rtol=1e-15)


@pytest.mark.parametrize("name", BACKENDS[1:])
@pytest.mark.parametrize("member", [*MEMBERS, "Halved"])
def test_kernels_of_any_device(member: str, name: str) -> None:
    ops = backend(name)
    conf = make("Adam" if member == "Halved" else member, weight_decay=0.01, clip_low=-2.0, clip_high=2.0).conf
    kind = Halved if member == "Halved" else UPDATERS.find(conf.type)
    random = np.random.default_rng(0)
    w, *grads = random.normal(size=(4, 1000)).astype(np.float32)
    there = ops.from_host(w.copy())
    updater = kind(conf)
    updater.ops = ops
    state = {name: ops.zeros((1000,), np.float32) for name in updater.state_names}
    for t, grad in enumerate(grads):
        updater.update(t, t, there, ops.from_host(grad), state, n_sharers=3, lr_scale=0.5)
    wanted = run(kind(conf), w, grads, n_sharers=3, lr_scale=0.5)
    np.testing.assert_allclose(ops.to_host(there), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("member", "name"),
    [
        pytest.param(member, name, marks=[pytest.mark.long] * (name.startswith("cuda") and member not in COMPILED))
        for member in (*MEMBERS, "Halved")
        for name in BACKENDS
    ],
)
def test_slices_of_a_list_have_factors_of_their_own(member: str, name: str) -> None:
    ops, scales, sizes = backend(name), [(1.0, 1.0), (2.0, 0.0), (1.0, 1.0), (0.3, 2.5)], (7, 5000, 0, 64)
    conf = make("Adam" if member == "Halved" else member, weight_decay=0.01).conf
    updater = (Halved if member == "Halved" else UPDATERS.find(conf.type))(conf)
    updater.ops = ops
    random = np.random.default_rng(0)
    started, *grads = ([random.normal(size=size).astype(np.float32) for size in sizes] for _ in range(3))
    together, alone = ([ops.from_host(x.copy()) for x in started] for _ in range(2))
    states = [{each: ops.zeros(x.shape, np.float32) for each in updater.state_names} for x in alone]
    lists = {each: ArrayList(ops.zeros(x.shape, np.float32) for x in alone) for each in updater.state_names}
    factors = dict(zip(("lr_scale", "wd_scale"), zip(*scales, strict=True), strict=True))
    for t, gradients in enumerate(grads):
        there, values = ArrayList(ops.from_host(x) for x in gradients), ArrayList(together)
        updater.update(t, t, values, there, lists, n_sharers=2, **factors)
        for value, grad, state, (lr, wd) in zip(alone, there, states, scales, strict=True):
            updater.update(t, t, value, grad, state, n_sharers=2, lr_scale=lr, wd_scale=wd)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(ops.to_host(one), ops.to_host(other))


def test_a_rule_that_says_nothing_is_named() -> None:
    class Silent(Updater):
        """A rule without a rule."""

    with pytest.raises(TypeError, match=r"Silent cannot update: it has no rule\(\)"):
        run(Silent(make("SGD").conf), np.ones(1), [np.ones(1)])
