"""Params of which a job says nothing start as their layers have it, alike for any partition; resolved jobs say how."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.cli import job as job_files
from singa_dask.conf import InitConf, JobConf, Phase, load
from singa_dask.jobs.checks import complete
from singa_dask.layers import Param
from singa_dask.ops import philox
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.training import initial_values, with_initialisers
from tests.cli.conftest import ROOT, Call

NET = """\
name: net
train_steps: 2
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {path: data/digits/test.arrow, shape: [1, 28, 28], batchsize: 4, std_value: 255}
    - {name: conv, type: Convolution, srclayers: data, convolution_conf: {num_filters: 6, kernel: 5, stride: 2}}
    - {name: norm, type: BatchNorm, srclayers: conv}
    - {name: fc, type: InnerProduct, srclayers: norm, innerproduct_conf: {num_output: 12}, param: {name: w}}
    - {name: top, type: InnerProduct, srclayers: fc, innerproduct_conf: {num_output: 10, transpose: true}}
    - {name: loss, type: SoftmaxLoss, srclayers: [top, data]}
"""
ZERO, ONE = ("Constant", 0.0), ("Constant", 1.0)


def said(conf: InitConf | None) -> tuple[Any, ...]:
    assert conf is not None
    if conf.type == "Constant":
        return conf.type, conf.value
    return (conf.type, conf.high) if conf.type == "Uniform" else (conf.type, conf.std)


def inits(job: JobConf) -> dict[str, list[tuple[Any, ...]]]:
    return {layer.name: [said(param.init) for param in layer.param] for layer in job.neuralnet.layer if layer.param}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.yaml"
    path.write_text(NET)
    return path


def test_a_convnet(net: Path) -> None:
    made = complete(job_files.read(str(net), (), None))
    assert inits(made.job) == {
        "conv": [("Uniform", pytest.approx((6 / (25 + 6 * 25)) ** 0.5)), ZERO],
        "norm": [ONE, ZERO, ZERO, ONE],
        "fc": [("Uniform", pytest.approx((6 / (864 + 12)) ** 0.5)), ZERO],
        "top": [("Uniform", pytest.approx((6 / (12 + 10)) ** 0.5)), ZERO],
    }
    low = [
        param.init.low + param.init.high for layer in made.job.neuralnet.layer for param in layer.param if param.init
    ]
    assert low[0] == 0
    assert made.job.neuralnet.layer[3].param[0].name == "w"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (
            "configs/char-rnn/gru.yaml",
            {
                "gru1": [("Uniform", pytest.approx((6 / (512 + 153)) ** 0.5, rel=1e-5))] * 3
                + [("Orthogonal", 1.0)] * 3
                + [ZERO] * 3,
                "ip1": [("Uniform", pytest.approx((6 / (512 + 153)) ** 0.5, rel=1e-5)), ZERO],
            },
        ),
        ("configs/rbm/fashion/rbm1.yaml", {"vis": [("Gaussian", 0.01), ZERO], "hid": [None, ZERO]}),
    ],
)
def test_recurrent_nets_and_rbms(path: str, wanted: dict[str, Any]) -> None:
    read = job_files.read(str(ROOT / path), (), None)
    layers = read.job.model_dump(mode="json")["neuralnet"]["layer"]
    for layer in layers:
        for param in layer["param"]:
            param["init"] = None
    job = JobConf.model_validate({**read.job.model_dump(mode="json"), "neuralnet": {"layer": layers, "unroll_len": 50}})
    made = with_initialisers(job, build_nets(job)[Phase.TRAIN])
    found = {
        layer.name: [param.init and said(param.init) for param in layer.param]
        for layer in made.neuralnet.layer
        if layer.param
    }
    assert found == wanted


def test_the_forget_gate_of_an_lstm_starts_open() -> None:
    read = job_files.read(str(ROOT / "configs" / "char-rnn" / "lstm.yaml"), (), None)
    layers = [layer.model_copy(update={"param": []}) for layer in read.job.neuralnet.layer]
    job = read.job.model_copy(update={"neuralnet": read.job.neuralnet.model_copy(update={"layer": layers})})
    made = inits(with_initialisers(job, build_nets(job)[Phase.TRAIN]))
    assert [kind for kind, _ in made["lstm1"]] == ["Uniform"] * 4 + ["Orthogonal"] * 4 + ["Constant"] * 4
    assert [value for _, value in made["lstm1"][8:]] == [0, 1, 0, 0]


def test_what_the_job_says_stays(net: Path) -> None:
    net.write_text(NET.replace("param: {name: w}", "param: {name: w, init: {type: Gaussian, std: 3}}"))
    made = complete(job_files.read(str(net), (), None)).job
    assert inits(made)["fc"] == [("Gaussian", 3.0), ZERO]


def test_a_param_that_is_shared_needs_none(net: Path) -> None:
    net.write_text(
        NET.replace(
            "    - {name: top",
            "    - {name: mid, type: InnerProduct, srclayers: fc, innerproduct_conf: {num_output: 12},\n"
            "       param: [{name: v}, {name: c, share_from: fc.bias}]}\n    - {name: top",
        ).replace(
            "srclayers: fc, innerproduct_conf: {num_output: 10", "srclayers: mid, innerproduct_conf: {num_output: 10"
        )
    )
    job = complete(job_files.read(str(net), (), None)).job
    assert job.neuralnet.layer[4].param[1].init is None


@pytest.mark.parametrize("cluster", [{}, {"nworkers_per_group": 2}, {"nworkers_per_group": 2, "nworker_groups": 2}])
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_the_same_bits_for_any_partition(net: Path, cluster: dict[str, int], dim: int) -> None:
    def values(path: Path, *sets: str) -> dict[str, Any]:
        job = complete(job_files.read(str(path), sets, None)).job
        start, found = InitialState(job), dict[str, Any]()
        for layer, _ in build_nets(job)[Phase.TRAIN].layers_of_job():
            for param in layer.params:
                found[param.name] = whole(start, param)
        return found

    alone = values(net)
    sets = [f"cluster.{key}={value}" for key, value in cluster.items()]
    shared = values(net, f"neuralnet.partition_dim={dim}", *sets)
    assert alone.keys() == shared.keys() and len(alone) == 10
    for name, value in alone.items():
        np.testing.assert_array_equal(value, shared[name])


def whole(start: InitialState, param: Param) -> Any:
    """Return the whole param as the worker that has a part of it draws it, and check that part."""
    assert param.conf.init is not None
    made = initial_values(param.conf.init, param.name, param.whole_shape, start.job.seed)
    part, _ = start.values(param)
    np.testing.assert_array_equal(part, param.shard.of(made) if param.shard else made)
    return made


@pytest.mark.parametrize("shape", [(64, 64), (7, 7), (20, 50), (50, 20), (1, 5)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    made = initial_values(InitConf(type="Orthogonal", value=2), "u", shape, 3, np.float64)
    small = made if shape[0] <= shape[1] else made.T
    np.testing.assert_allclose(small @ small.T, 4 * np.eye(min(shape)), atol=1e-6)
    other = initial_values(InitConf(type="Orthogonal", value=2), "u", shape, 4, np.float64)
    assert np.abs(made - other).max() > 0.1


@pytest.mark.parametrize("shape", [(10, 25088), (25088, 10)])
def test_orthogonal_needs_memory_for_its_values_alone(shape: tuple[int, int]) -> None:
    tracemalloc.start()
    made = initial_values(InitConf(type="Orthogonal"), "u", shape, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made.shape == shape
    assert peak < 64 << 20  # a square of the longer side has 5 GB


def test_orthogonal_is_as_random_as_a_gaussian() -> None:
    values = np.sqrt(512) * initial_values(InitConf(type="Orthogonal"), "u", (512, 512), 0)
    noise = philox.generator((0, "other")).standard_normal((512, 512))
    for power in (2, 4):
        assert (values**power).mean() == pytest.approx((noise**power).mean(), rel=0.05)
    assert abs(np.trace(values)) < 4 * np.sqrt(512)


def test_a_run_without_any_init(call: Call, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for words in ("validate", net), ("run", net, "--quiet", "--run-dir", tmp_path / "run"):
        result = call(*words)
        assert result.exit_code == 0, result.output
    resolved = load(tmp_path / "run" / "resolved.yaml").job
    assert inits(resolved) == inits(complete(job_files.read(str(net), (), None)).job)
    # values of a checkpoint come first, and with one a missing param is a mistake
    more = ["run", net, "--quiet", "--init-from", tmp_path / "run", "--set", "updater.learning_rate.base_lr=0"]
    assert call(*more, "--run-dir", tmp_path / "more").exit_code == 0
    result = call(*more, "--run-dir", tmp_path / "none", "--set", "neuralnet.layer[fc].param.name=other")
    assert result.exit_code == 2
    assert "param 'other' has no init, and no checkpoint gives its values" in result.stderr


def test_a_file_of_singas_needs_init_as_it_did(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tests" / "gold")
    text = (ROOT / "tests" / "gold" / "confs" / "mlp_sgd.conf").read_text()
    path = tmp_path / "mlp.conf"
    path.write_text(re.sub(r"checkpoint_path: \S+|init \{[^}]*\}", "", text))
    result = call("validate", path)
    assert result.exit_code == 2, result.output
    assert "has no init, and no checkpoint gives its values" in result.stderr
