"""Layers that are replayed on a CPU: they change no bit, and are left to their own code where something has changed."""

from __future__ import annotations

from collections import Counter
from functools import wraps
from typing import Any, cast

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from singa_dask.conf import JobConf, Phase
from singa_dask.inputs import InputContext
from singa_dask.layers import Layer, Speed, Traits
from singa_dask.layers.neuron import Dropout, InnerProduct
from singa_dask.layers.recurrent import Recurrent
from singa_dask.net import make_net, replay
from singa_dask.ops import get_ops
from singa_dask.training import ALGORITHMS
from tests.gpu.test_nets import NAMES, Run, jobs
from tests.net.jobs import DATA, dense, job, layer, mlp
from tests.selection import mostly_long

__all__ = ["jobs"]

BEFORE = {"forward": 4, "backward": 4}
"""Passes that a layer's own code computes: the first ones, and two that are captured."""


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count by layer how often its own code computes an InnerProduct or recurrent layer forward or back."""
    n_calls: Counter[str] = Counter()

    def counted(verb: Any) -> Any:
        @wraps(verb)
        def run(self: Layer, phase: Phase) -> None:
            n_calls[f"{self.name} {verb.__name__}"] += 1
            verb(self, phase)

        return run

    for kind in (InnerProduct, Recurrent):
        for name in ("forward", "backward"):
            monkeypatch.setattr(kind, name, counted(getattr(kind, name)))
    return n_calls


@pytest.mark.parametrize("ops", mostly_long(["onednn", "numpy"], 2))
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.long] if each in ("padded", "residual") else []) for each in NAMES]
)
def test_a_net_learns_the_same_bits(
    jobs: dict[str, JobConf], name: str, ops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for _ in range(2):
        run = Run(jobs[name], get_ops(ops), np.float32)
        # more than an epoch of the texts, which then start anew
        run.train(range(12))
        found.append(run.found())
        monkeypatch.setattr(replay, "is_replayable", lambda layer: False)
    assert found[0].keys() == found[1].keys()
    for key, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][key], err_msg=key)


def test_layers_are_replayed(counts: Counter[str]) -> None:
    Run(job(mlp()), get_ops("onednn"), np.float32).train(range(10))
    assert counts == {f"{name} {verb}": n for name in ("fc1", "fc2") for verb, n in BEFORE.items()}


def test_recurrent_layers_are_replayed(jobs: dict[str, JobConf], counts: Counter[str]) -> None:
    # fewer steps than an epoch has: where texts start anew, layers compute a pass themselves
    Run(jobs["padded"], get_ops("onednn"), np.float32).train(range(8))
    assert all(counts[f"{name} {verb}"] == n for name in ("out", "score") for verb, n in BEFORE.items())
    # weights that were copied by the pass forward are copied by that back too, once forward is replayed
    assert all(counts[f"{name} {verb}"] <= n + 1 for name in ("forth", "back") for verb, n in BEFORE.items())


@pytest.mark.parametrize("what", ["params", "threads", "records"])
def test_what_has_moved_is_seen(what: str, counts: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for n_own in (BEFORE["forward"], 6):
        net = Run(job(mlp()), get_ops("onednn"), np.float32).net
        algorithm = ALGORITHMS.find("BP")(net)
        counts.clear()
        with threadpool_limits(2, "openmp"):
            for _ in range(6):
                algorithm.test_one_batch(Phase.TEST)
        assert counts["fc1 forward"] == n_own
        feature = net.name2layer("data").features[0]
        if what == "params":
            for param in net.params:
                param.data = 2 * param.data
        elif what == "records":
            feature.own_data, feature.data = False, np.zeros_like(feature.data)
        with threadpool_limits(1 if what == "threads" else 2, "openmp"):
            for _ in range(2):
                algorithm.test_one_batch(Phase.TEST)
        assert counts["fc1 forward"] == n_own + 2
        found.append(np.array(net.name2layer("fc2").features[0].data))
        monkeypatch.setattr(replay, "is_replayable", lambda layer: False)
    np.testing.assert_array_equal(*found)


class Halved(InnerProduct):
    """A user's layer, which says that a GPU can replay it."""

    traits = Traits(params=("weight", "bias"))
    speed = Speed(capturable=True)

    def forward(self, phase: Phase) -> None:
        super().forward(phase)
        self.features[0].data[...] /= 2


def test_layers_of_users_compute_by_their_own_code() -> None:
    context = InputContext(dtype=np.dtype(np.float32), seed=3)
    net = make_net(job(mlp()), context, get_ops("onednn"))
    assert replay.is_replayable(net.name2layer("fc1"))
    own = Halved(net.name2layer("fc2").conf, context)
    assert own.speed.capturable and not replay.is_replayable(own)


def test_a_layer_that_draws_is_left_alone() -> None:
    layers = [DATA, dense("fc", "data", 64), layer("drop", "Dropout", "fc", dropout_conf={"dropout_ratio": 0.5})]
    layers += [dense("out", "drop", 3), layer("loss", "SoftmaxLoss", "out", "data")]
    run = Run(job(layers), get_ops("numpy"), np.float32)
    masks = []
    for step in range(2 * replay.MAX_CAPTURES):
        run.train([step])
        masks.append(np.array(cast(Dropout, run.net.name2layer("drop")).mask.data))
    assert len({mask.tobytes() for mask in masks}) == len(masks)


def test_a_device_with_memory_of_its_own_is_left_alone(counts: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ops = get_ops("numpy")
    monkeypatch.setattr(type(ops), "device", "cuda:0")
    Run(job(mlp()), ops, np.float32).train(range(10))
    assert set(counts.values()) == {10}
