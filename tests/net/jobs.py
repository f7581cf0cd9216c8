"""Small jobs for the tests of nets and of training."""

from __future__ import annotations

from typing import Any

from singa_dask.conf import JobConf, Phase
from singa_dask.inputs import InputContext
from singa_dask.net import NeuralNet, make_net
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.training import initial_values

DATA = {"name": "data", "type": "Feed", "user_conf": {"shape": [8, 6], "classes": 3}}
UNIFORM = {"type": "Uniform", "low": -0.5, "high": 0.5}


def dense(name: str, source: str, n: int, **more: Any) -> dict[str, Any]:
    """Return an InnerProduct with params ``w_<name>`` and ``b_<name>``."""
    params = [{"name": f"{kind}_{name}", "init": UNIFORM} for kind in ("w", "b")]
    made = {"name": name, "type": "InnerProduct", "srclayers": [source], "param": params}
    return {**made, "innerproduct_conf": {"num_output": n}, **more}


def layer(name: str, kind: str, *sources: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "srclayers": list(sources), **more}


def mlp() -> list[dict[str, Any]]:
    return [
        DATA,
        dense("fc1", "data", 5),
        layer("act1", "STanh", "fc1"),
        dense("fc2", "act1", 3),
        layer("loss", "SoftmaxLoss", "fc2", "data"),
    ]


def job(layers: list[dict[str, Any]], **more: Any) -> JobConf:
    made = {
        "neuralnet": {"layer": layers},
        "train_one_batch": {"alg": "BP"},
        "updater": {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}},
        "train_steps": 10,
    }
    return JobConf.model_validate({**made, **more})


def build(
    layers: list[dict[str, Any]], share_from: NeuralNet | None = None, ops: NumpyOps | None = None, **context: Any
) -> NeuralNet:
    return make_net(job(layers), InputContext(**context), ops or get_ops("cpu"), share_from)


def ready(
    layers: list[dict[str, Any]], share_from: NeuralNet | None = None, ops: NumpyOps | None = None, **context: Any
) -> NeuralNet:
    """Return a net that can run: memory allocated, params drawn."""
    net = build(layers, share_from, ops, **context)
    net.allocate()
    if share_from is None:
        net.allocate_params()
    for param in net.owners:
        if param.conf.init:
            values = initial_values(param.conf.init, param.name, param.shape, net.context.seed, param.dtype)
            net.ops.copy(values, out=param.data)
    return net


TEST = Phase.TEST
