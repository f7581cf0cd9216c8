"""Lion: the numbers of its paper, its weight decay, any slicing the same bits, and on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import UpdaterConf
from singa_dask.training import UPDATERS, Updater
from tests.backends import BACKENDS, backend


def make(**conf: Any) -> Updater:
    rate = {"type": "Fixed", "base_lr": 0.1}
    return UPDATERS.find("Lion")(UpdaterConf.model_validate({"type": "Lion", "learning_rate": rate, **conf}))


def run(updater: Updater, w: Any, grads: Any, cuts: tuple[int, ...] = ()) -> Any:
    w, mean = w.copy(), np.zeros_like(w)
    for t, grad in enumerate(grads):
        for piece in np.split(np.arange(w.size), cuts):
            part = slice(piece[0], piece[-1] + 1)
            updater.update(t, t, w[part], grad[part], {"mean": mean[part]})
    return w


def test_numbers_of_the_paper() -> None:
    # b1 m + (1 - b1) g is 0.1, then 0.9 * 0.01 - 0.1 * 0.08 = 0.001: the mean still leads
    grads = np.array([[1.0], [-0.08], [-1.0]])
    values = [run(make(), np.ones(1), grads[:n])[0] for n in (1, 2, 3)]
    assert values == pytest.approx([0.9, 0.8, 0.9], abs=1e-12)
    betas = {"lion_conf": {"beta1": 0.5, "beta2": 0.5}}
    assert run(make(**betas), np.ones(1), grads)[0] == pytest.approx(0.9, abs=1e-12)


def test_decoupled_weight_decay() -> None:
    w = run(make(weight_decay=0.5), np.ones(1), np.array([[2.0]]))
    assert w[0] == pytest.approx(1 - 0.1 * 0.5 - 0.1, abs=1e-12)


def test_slicing_never_changes_a_bit() -> None:
    w, *grads = np.random.default_rng(0).normal(size=(4, 300)).astype(np.float32)
    updater = make(weight_decay=0.01)
    np.testing.assert_array_equal(run(updater, w, grads, (1, 77, 150)), run(updater, w, grads))


def test_a_zero_gradient_changes_nothing() -> None:
    np.testing.assert_array_equal(run(make(), np.ones(3), np.zeros((2, 3))), 1)


@pytest.mark.parametrize("name", BACKENDS[1:])
def test_on_any_device(name: str) -> None:
    ops, updater = backend(name), make(weight_decay=0.01)
    w, *grads = np.random.default_rng(0).normal(size=(4, 300)).astype(np.float32)
    wanted = run(make(weight_decay=0.01), w, grads)
    updater.ops = ops
    there, state = ops.from_host(w.copy()), {"mean": ops.zeros((300,), np.float32)}
    for t, grad in enumerate(grads):
        updater.update(t, t, there, ops.from_host(grad), state)
    np.testing.assert_allclose(ops.to_host(there), wanted, rtol=1e-5, atol=1e-6)
