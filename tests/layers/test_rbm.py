"""The layers of an RBM: formulas with the same random numbers, gradients of the free energy, what may be wired."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import Context, Feature
from singa_dask.layers.rbm import RBMHid, RBMVis
from singa_dask.net import memory, wiring
from singa_dask.ops import BFLOAT16, get_ops, philox
from singa_dask.testing.case import source, wire
from singa_dask.testing.layer_exam import EPSILON

N, D, H = 6, 8, 5
FIRST = Phase.NEGATIVE | Phase.TEST
KINDS = [(False, False), (False, True), (True, False), (True, True)]


def context(**more: Any) -> Context:
    return Context(**{"dtype": np.dtype(np.float64), "seed": 3, "step": 7, **more})


def pair(
    x: Feature, given: Context | None = None, *, visible: Any = (), hidden: Any = (), ops: Any = None
) -> tuple[RBMVis, RBMHid]:
    """Return the layers of an RBM on records ``x``, wired as a net does it, params drawn."""
    given, ops = given or context(), ops or get_ops("numpy")
    blocks = [{"hdim": H, **dict(block)} for block in (visible, hidden)]
    made = [
        {"name": "vis", "type": "RBMVis", "srclayers": ["x", "hid"], "rbm_conf": blocks[0]},
        {"name": "hid", "type": "RBMHid", "srclayers": ["vis"], "rbm_conf": blocks[1]},
    ]
    confs = [LayerConf.model_validate(each) for each in made]
    vis, hid = RBMVis(confs[0], given), RBMHid(confs[1], given)
    wiring.wire(vis, [x], ops)
    wiring.wire(hid, [vis.features[0]], ops)
    vis.bind_feedback(hid.features[0])
    hid.weight.share(vis.weight)
    random = np.random.default_rng(8)
    for layer in (vis, hid):
        layer.learns = True
        memory.allocate(layer)
        for param in layer.params:
            if param.owner is param:
                param.data = ops.from_host(random.normal(size=param.shape).astype(param.dtype))
    return vis, hid


def run(layers: Any, *phases: Phase) -> None:
    for phase in phases:
        for layer in layers:
            layer.forward(phase)


def records(shape: tuple[int, ...] = (N, D)) -> Feature:
    return source(shape, grad=False)


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def draw(chances: Any, gaussian: bool, number: int, step: int = 7) -> Any:
    """Sample hidden units as layer "vis" does."""
    key = (3, "vis", 0, int(Phase.TRAIN), step, "hidden", number)
    if gaussian:
        return chances + philox.gaussian(key, chances.shape)
    return (philox.uniform(key, chances.shape) < chances).astype(float)


@pytest.mark.parametrize(("of_visible", "of_hidden"), KINDS)
def test_three_gibbs_steps_by_hand(of_visible: bool, of_hidden: bool) -> None:
    x = records()
    vis, hid = pair(x, visible={"gaussian": of_visible}, hidden={"gaussian": of_hidden})
    run((vis, hid), Phase.POSITIVE, FIRST, Phase.NEGATIVE, Phase.NEGATIVE)
    w, b, c = vis.weight.data, vis.params[1].data, hid.params[1].data
    up, down = (lambda y: y) if of_hidden else logistic, (lambda y: y) if of_visible else logistic
    h = positive = up(x.data @ w.T + c)
    v = x.data
    for number in range(3):
        v = down(draw(h, of_hidden, number) @ w + b)
        h = up(v @ w.T + c)
        if not number:
            error = ((x.data - v) ** 2).sum() / N
    np.testing.assert_allclose(vis.units.data, x.data)
    np.testing.assert_allclose(hid.units.data, positive, rtol=1e-12)
    np.testing.assert_allclose(vis.units.model, v, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(hid.units.model, h, rtol=1e-9, atol=1e-12)
    assert vis.metrics.take() == {"squared_error": (pytest.approx(error), 1.0)}
    hid.backward(Phase.TRAIN)
    vis.backward(Phase.TRAIN)
    np.testing.assert_allclose(vis.weight.grad, (h.T @ v - positive.T @ x.data) / N, atol=1e-12)
    np.testing.assert_allclose(vis.params[1].grad, (v - x.data).mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(hid.params[1].grad, (h - positive).mean(axis=0), atol=1e-12)
    assert not hid.weight.has_grad and hid.weight.is_idle


def free_energy(v: Any, w: Any, b: Any, c: Any, of_visible: bool, of_hidden: bool) -> float:
    """Return the mean of F(v), where p(v) is proportional to exp(-F(v))."""
    drive = v @ w.T + c
    of_hiddens = (drive**2 / 2 if of_hidden else np.log1p(np.exp(drive))).sum(axis=1)
    of_visibles = -((v - b) ** 2).sum(axis=1) / 2 if of_visible else v @ b
    return float(-(of_visibles + of_hiddens).mean())


@pytest.mark.parametrize(("of_visible", "of_hidden"), KINDS)
def test_gradients_are_those_of_free_energies(of_visible: bool, of_hidden: bool) -> None:
    """Of F(records) - F(reconstruction), the reconstruction held fast."""
    vis, hid = pair(records(), visible={"gaussian": of_visible}, hidden={"gaussian": of_hidden})
    run((vis, hid), Phase.POSITIVE, FIRST)
    hid.backward(Phase.TRAIN)
    vis.backward(Phase.TRAIN)
    params = [vis.weight, vis.params[1], hid.params[1]]

    def objective() -> float:
        values = [param.data for param in params]
        found = [free_energy(v, *values, of_visible, of_hidden) for v in (vis.units.data, vis.units.model)]
        return found[0] - found[1]

    for param in params:
        for place in np.ndindex(param.shape):
            kept, sides = param.data[place], []
            for sign in (1, -1):
                param.data[place] = kept + sign * EPSILON
                sides.append(objective())
            param.data[place] = kept
            assert param.grad[place] == pytest.approx((sides[0] - sides[1]) / (2 * EPSILON), abs=1e-6)


@pytest.mark.parametrize("gaussian", [False, True])
def test_samples_belong_to_rows_of_the_group(gaussian: bool) -> None:
    whole, parts = records(), []
    vis, hid = pair(whole, hidden={"gaussian": gaussian})
    run((vis, hid), Phase.POSITIVE, FIRST, Phase.NEGATIVE)
    for worker in range(2):
        x = records((N // 2, D))
        x.data[...] = whole.data[worker * N // 2 : (worker + 1) * N // 2]
        part = pair(x, context(worker=worker, n_workers=2), hidden={"gaussian": gaussian})
        run(part, Phase.POSITIVE, FIRST, Phase.NEGATIVE)
        parts.append(part[0].units.model)
    np.testing.assert_allclose(np.concatenate(parts), vis.units.model, rtol=1e-12)


def test_images_are_taken_as_rows() -> None:
    images, rows = records((N, 2, 2, 2)), records()
    rows.data[...] = images.data.reshape(N, -1)
    found = []
    for x in (images, rows):
        vis, hid = pair(x)
        run((vis, hid), Phase.POSITIVE, FIRST)
        found.append(vis.units.model)
    np.testing.assert_array_equal(*found)


def test_without_biases() -> None:
    x = records()
    vis, hid = pair(x, visible={"bias_term": False}, hidden={"bias_term": False})
    run((vis, hid), Phase.POSITIVE, FIRST)
    np.testing.assert_allclose(hid.units.data, logistic(x.data @ vis.weight.data.T))
    hid.backward(Phase.TRAIN)
    vis.backward(Phase.TRAIN)
    assert [len(layer.params) for layer in (vis, hid)] == [1, 1]
    assert vis.weight.grad.any()


def test_features_in_bfloat16() -> None:
    try:
        ops = get_ops("onednn", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))
    values = np.random.default_rng(4).normal(size=(N, D)).astype(BFLOAT16)
    found = []
    for dtype, kernels in ((BFLOAT16, ops), (np.dtype(np.float64), get_ops("numpy"))):
        x = Feature((N, D), dtype)
        x.data = values.astype(dtype)
        vis, hid = pair(x, context(dtype=dtype), ops=kernels)
        run((vis, hid), Phase.POSITIVE)
        hid.units.data[...] = np.arange(N * H).reshape(N, H) % 2  # the same samples from both
        run((vis, hid), FIRST)
        vis.backward(Phase.TRAIN)
        found.append([vis.units.model, vis.weight.grad, vis.params[1].grad])
    assert found[0][1].dtype == np.float32
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.astype(float), other, atol=0.05)


@pytest.mark.parametrize("sources", [["x"], ["x", "hid", "more"]])
def test_the_visible_layer_reads_records_and_the_hidden_layer(sources: list[str]) -> None:
    conf = {"name": "vis", "type": "RBMVis", "srclayers": sources, "rbm_conf": {"hdim": H}}
    with pytest.raises(ConfigError, match=r"RBMVis reads two layers: the records, and an RBMHid"):
        wiring.wire(RBMVis(LayerConf.model_validate(conf), context()), [records()], get_ops("numpy"))


def test_the_hidden_layer_reads_a_visible_one() -> None:
    with pytest.raises(ConfigError, match=r"RBMHid reads an RBMVis, not 'src0'\."):
        wire("RBMHid", [records()], rbm_conf={"hdim": H})


def test_what_closes_the_loop_is_a_hidden_layer() -> None:
    vis, _ = pair(records())
    with pytest.raises(ConfigError, match=r"expected an RBMHid, but 'hid' is not one\."):
        vis.bind_feedback(records())
