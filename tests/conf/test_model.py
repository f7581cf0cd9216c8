"""Models: SINGA's defaults, its ways to write things, and what may not be."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from singa_dask import conf
from singa_dask.api import REGISTRIES
from singa_dask.errors import ConfigError
from singa_dask.inputs.sampling import RNNDummyConf
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.conv import ConvolutionConf
from singa_dask.layers.neuron import DropoutConf, InnerProductConf
from singa_dask.layers.norm import LRNConf
from singa_dask.layers.pooling import PoolingConf

LAYER: dict[str, Any] = {"name": "fc1", "type": "InnerProduct"}
UPDATER: dict[str, Any] = {"type": "SGD", "learning_rate": {"type": "Fixed"}}
JOB: dict[str, Any] = {
    "neuralnet": {"layer": [LAYER]},
    "train_one_batch": {"alg": "BP"},
    "updater": UPDATER,
    "train_steps": 1,
}


def job(**changes: Any) -> conf.JobConf:
    return conf.JobConf.model_validate({**JOB, **changes})


def mistakes(model: type[conf.Conf], data: Any, registries: Any = None) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data, context={"registries": registries})
    return [(found["loc"], found["msg"]) for found in caught.value.errors()]


def net_findings(net: Any) -> list[tuple[tuple[int | str, ...], str]]:
    """Return what is wrong with a net, beside blocks and keys that are missing."""
    try:
        conf.NetConf.model_validate(net, context={"registries": REGISTRIES})
    except ValidationError as error:
        return [(found["loc"], found["msg"]) for found in error.errors() if not found["msg"].endswith("missing.")]
    return []


def test_defaults_are_singas() -> None:
    made = job()
    assert (made.disp_freq, made.test_after, made.threads) == (0, 0, 0)
    assert made.reset_param_version and not made.debug
    updater = made.updater
    assert (updater.momentum, updater.weight_decay, updater.delta) == (0, 0, 1e-8)
    assert (updater.clip_low, updater.clip_high, updater.learning_rate.base_lr) == (0, 0, 0.01)
    cluster = made.cluster
    assert (cluster.nworker_groups, cluster.nservers_per_procs, cluster.sync_freq) == (1, 1, 1)
    assert cluster.share_memory and not cluster.server_worker_separate
    layer = made.neuralnet.layer[0]
    assert (layer.srclayers, layer.param, layer.partition_dim, layer.unroll_len) == ([], [], None, None)
    param = conf.ParamConf()
    assert (param.name, param.lr_scale, param.wd_scale, param.init) == ("", 1, 1, None)
    init = conf.InitConf(type="Uniform")
    assert (init.value, init.mean, init.std, init.low, init.high) == (1, 0, 1, -1, 1)
    store = StoreConf()
    assert (store.separator, store.random_skip, store.has_label, store.prefetching) == (",", 0, True, False)
    assert store.mean_value == store.std_value == []


def test_names_with_a_k_are_read() -> None:
    made = job(
        train_one_batch={"alg": "kBPTT"},
        updater={"type": "kAdaGrad", "learning_rate": {"type": "kFixed"}},
        neuralnet={
            "layer": {
                "name": "p",
                "type": "kPooling",
                "include": ["kTrain", "kVal", "validation", "test"],
                "unroll_conn_type": ["kUnrollOneToAll", "UnrollOneToOne", "FirstToLast"],
                "param": {"init": {"type": "kGaussian"}},
            }
        },
    )
    layer = made.neuralnet.layer[0]
    assert (made.train_one_batch.alg, made.updater.type, made.updater.learning_rate.type) == (
        "BPTT",
        "AdaGrad",
        "Fixed",
    )
    assert layer.type == "Pooling" and layer.param[0].init and layer.param[0].init.type == "Gaussian"
    assert layer.include == ["train", "val", "val", "test"]
    assert layer.unroll_conn_type == ["OneToAll", "OneToOne", "FirstToLast"]


def test_threads_may_have_singas_name() -> None:
    assert job(num_openblas_threads=3).threads == 3


def test_kvfile_keeps_its_k() -> None:
    assert StoreConf(backend="kvfile").backend == "kvfile"


def test_user_type_goes_before_type() -> None:
    made = job(
        train_one_batch={"alg": "kUserAlg", "user_alg": "mine.Alg"},
        neuralnet={"layer": [{"name": "a", "type": "kUserLayer", "user_type": "mine.Layer", "user_conf": {"n": None}}]},
    )
    assert made.train_one_batch.alg == "mine.Alg"
    assert made.neuralnet.layer[0].type == "mine.Layer"
    assert made.neuralnet.layer[0].user_conf == {"n": None}


@pytest.mark.parametrize(("value", "read"), [(3, [3]), ([3, 4], [3, 4]), ((3, 4), [3, 4]), (None, [])])
def test_one_value_stands_for_a_list(value: Any, read: list[int]) -> None:
    assert StoreConf.model_validate({"shape": value}).shape == read


@pytest.mark.parametrize("kind", [ConvolutionConf, PoolingConf])
def test_scalars_of_a_window_rule_over_both_axes_only_where_given(kind: Any) -> None:
    needed = {"num_filters": 4} if kind is ConvolutionConf else {}
    window = kind(kernel=5, kernel_x=3, pad_x=1, pad_y=2, **needed)
    assert (window.sizes("kernel"), window.sizes("pad")) == ((5, 5), (2, 1))
    assert kind(**needed).sizes("kernel") == (3, 3)
    assert kind(**needed).sizes("stride") == ((1, 1) if kind is ConvolutionConf else (2, 2))
    assert kind(stride=3, stride_x=7, **needed).sizes("stride") == (3, 3)


def test_a_layer_is_in_the_nets_it_says() -> None:
    both = conf.Phase.TRAIN, conf.Phase.VALIDATION, conf.Phase.TEST

    def phases(**words: Any) -> list[bool]:
        layer = conf.LayerConf(**LAYER, **words)
        return [layer.in_phase(phase) for phase in both]

    assert phases() == [True, True, True]
    assert phases(include=["kTrain", "test"]) == [True, False, True]
    assert phases(exclude="test") == [True, True, False]
    assert conf.LayerConf(**LAYER, include=["train"]).in_phase(conf.Phase.TRAIN | conf.Phase.FORWARD)


def test_block_of_a_layer() -> None:
    layer = conf.LayerConf(**LAYER, innerproduct_conf=InnerProductConf(num_output=3))
    assert layer.block(InnerProductConf).num_output == 3
    assert layer.block(DropoutConf).dropout_ratio == 0.5
    with pytest.raises(ConfigError, match=r"^convolution_conf: InnerProduct needs this block, with num_filters\.$"):
        layer.block(ConvolutionConf)


def test_models_are_frozen_and_travel() -> None:
    made = job()
    with pytest.raises(ValidationError):
        made.train_steps = 3
    assert pickle.loads(pickle.dumps(made)) == made


def test_models_of_python_and_plain_values_mix() -> None:
    layers = [conf.LayerConf(**LAYER), {"name": "act", "type": "Tanh", "srclayers": "fc2"}]
    assert mistakes(conf.NetConf, {"layer": layers}) == [
        (("layer", 1, "srclayers", 0), "unknown layer 'fc2'. Did you mean 'fc1'? Known: fc1.")
    ]


@pytest.mark.parametrize(
    ("model", "data", "path", "words"),
    [
        (StoreConf, {"std_value": 0}, ("std_value",), "a number other than 0"),
        (StoreConf, {"std_value": 0.0}, ("std_value",), "a number other than 0"),
        (StoreConf, {"max_bad": 0}, ("max_bad",), "expected more than 0.0"),
        (StoreConf, {"max_bad": 2.5}, ("max_bad",), "a whole number, or a share below 1, got 2.5"),
        (StoreConf, {"separator": ""}, ("separator",), "not empty"),
        (StoreConf, {"shuffle": "blocks"}, ("shuffle",), "Did you mean 'block'?"),
        (StoreConf, {"batchsize": [0]}, ("batchsize", 0), "at least 1, got 0"),
        (StoreConf, {"has_label": 1}, ("has_label",), "true or false, got 1"),
        (DropoutConf, {"dropout_ratio": 1.0}, ("dropout_ratio",), "less than 1.0, got 1.0"),
        (DropoutConf, {"dropout_ratio": float("nan")}, ("dropout_ratio",), "a finite number, got nan"),
        (LRNConf, {"local_size": 4}, ("local_size",), "an odd number, got 4"),
        (conf.InitConf, {"type": "Uniform", "low": 2}, ("low",), "at most high, which is 1, got 2"),
        (conf.LayerConf, {**LAYER, "partition_dim": 2}, ("partition_dim",), "at most 1, got 2"),
        (conf.LayerConf, {**LAYER, "name": ""}, ("name",), "not empty"),
        (conf.LayerConf, {"name": "a"}, ("type",), "required"),
        (conf.ClusterConf, {"nworkers_per_group": True}, ("nworkers_per_group",), "an integer, got true"),
        (conf.ClusterConf, {"nwrokers": 2}, ("nwrokers",), "Did you mean 'nworkers_per_group'?"),
        (conf.ClusterConf, {"worker": {}}, ("worker",), "Did you mean 'workers'?"),
        (conf.ClusterConf, {"workspace": []}, ("workspace",), "text, got a list"),
        (conf.ClusterConf, {"sync_freq": "x" * 99}, ("sync_freq",), "an integer, got 'xxx"),
        (conf.ClusterConf, None, (), "a mapping of keys to values, got nothing"),
        (conf.UpdaterConf, {**UPDATER, "delta": 0}, ("delta",), "more than 0.0, got 0"),
        (conf.JobConf, {**JOB, "precision": "bf32"}, ("precision",), "Known: bf16, float32, float64, tf32."),
        (
            conf.JobConf,
            {**JOB, "precision": "bf16", "ops": "numpy"},
            ("precision",),
            "bf16 needs ops onednn or cupy, not numpy.",
        ),
        (conf.JobConf, {**JOB, "gpu": [0], "ops": "onednn"}, ("gpu",), "ops onednn uses no GPUs."),
        (conf.JobConf, {**JOB, "gpu": [-1]}, ("gpu", 0), "at least 0, got -1"),
    ],
)
def test_what_may_not_be(model: type[conf.Conf], data: Any, path: tuple[str | int, ...], words: str) -> None:
    [(where, message)] = mistakes(model, data)
    assert where == path
    assert words in message


def test_every_mistake_is_told_at_once(registries: Any) -> None:
    found = mistakes(
        conf.JobConf,
        {
            "neuralnet": {"layer": [{"name": 3, "type": "Tanh", "srclayers": ["x"], "bias": 1}]},
            "updater": {"type": "kRMSProp", "momentum": "big", "learning_rate": {"type": "Step"}},
            "cluster": {"nworker_groups": 3, "nserver_groups": 2, "sync_freq": 0},
            "train_steps": -1,
        },
        registries,
    )
    assert {path for path, _ in found} == {
        ("train_one_batch",),
        ("train_steps",),
        ("neuralnet", "layer", 0, "name"),
        ("neuralnet", "layer", 0, "bias"),
        ("neuralnet", "layer", 0, "srclayers", 0),
        ("updater", "momentum"),
        ("updater", "rmsprop_conf"),
        ("updater", "learning_rate", "step_conf"),
        ("cluster", "nserver_groups"),
        ("cluster", "sync_freq"),
    }


@pytest.mark.parametrize(
    ("cluster", "key", "words"),
    [
        ({"elastic": {"min_processes": 2}}, ("elastic", "min_processes"), "number of processes of the job, which is 1"),
        ({"nworkers_per_group": 4, "nworkers_per_procs": 2, "elastic": {"max_processes": 3}},
         ("elastic", "max_processes"), "which is 2, got 3"),
        ({"nworkers_per_group": 4, "server_worker_separate": True, "elastic": {"min_processes": 6}},
         ("elastic", "min_processes"), "which is 5, got 6"),
        ({"nworkers_per_group": 4, "elastic": {"min_processes": 3, "max_processes": 2}},
         ("elastic", "min_processes"), "at most max_processes, which is 2, got 3"),
        ({"elastic": {"min_processes": 0}}, ("elastic", "min_processes"), "at least 1, got 0"),
        ({"max_restarts": -1}, ("max_restarts",), "at least 0, got -1"),
    ],
)  # fmt: skip
def test_numbers_of_processes_that_a_job_cannot_have(cluster: Any, key: tuple[str, ...], words: str) -> None:
    [(path, message)] = mistakes(conf.ClusterConf, cluster)
    assert path == key
    assert words in message


@pytest.mark.parametrize(
    ("ports", "numbers"), [("", [0]), (9000, [9000]), ("9000", [9000]), ("9000-9002", [9000, 9001, 9002])]
)
def test_ports_to_listen_on(ports: Any, numbers: list[int]) -> None:
    listen = conf.ClusterConf.model_validate({"listen": {"ports": ports}}).listen
    assert list(listen.port_range) == numbers
    assert conf.ClusterConf.model_validate_json(conf.ClusterConf(listen=listen).model_dump_json()).listen == listen


@pytest.mark.parametrize("ports", ["9002-9000", "0", "65536", "1-65536", "9000,9001", "any", -1])
def test_ports_that_there_are_not(ports: Any) -> None:
    [(path, message)] = mistakes(conf.ClusterConf, {"listen": {"ports": ports}})
    assert path == ("listen", "ports")
    assert "expected a port or a range such as 9000-9100" in message


def test_a_job_may_have_fewer_processes() -> None:
    cluster = conf.ClusterConf.model_validate({"nworkers_per_group": 4, "elastic": {"min_processes": 2}})
    assert (cluster.elastic.min_processes, cluster.elastic.max_processes, cluster.max_restarts) == (2, None, 10)


def data_layer(**conf_of_store: Any) -> dict[str, Any]:
    return {"layer": {"name": "data", "type": "RecordInput", "store_conf": conf_of_store}}


@pytest.mark.parametrize("sizes", [5, [6], [2, 4]])
def test_batches_that_divide(sizes: Any) -> None:
    assert job(neuralnet=data_layer(batchsize=sizes), cluster={"nworkers_per_group": 2})


def test_batches_that_do_not_divide() -> None:
    net, words = data_layer(batchsize=[2, 4, 6]), "one for each of 2 workers of a group, got 3"
    [(path, message)] = mistakes(conf.JobConf, {**JOB, "neuralnet": net, "cluster": {"nworkers_per_group": 2}})
    assert path[-1] == "batchsize"
    assert words in message


def test_batches_of_a_net_that_is_not_split_need_not_divide() -> None:
    cluster = {"nworkers_per_group": 2}
    assert job(neuralnet={**data_layer(batchsize=5), "partition_dim": -1}, cluster=cluster)
    located = data_layer(batchsize=5)
    located["layer"]["location"] = 1
    assert job(neuralnet=located, cluster=cluster)


@pytest.mark.parametrize(("freq", "steps"), [("test_freq", "test_steps"), ("validate_freq", "validate_steps")])
def test_without_steps_a_frequency_is_for_all_records(freq: str, steps: str) -> None:
    assert getattr(job(**{freq: 5}), steps) is None
    assert getattr(job(**{freq: 5, steps: 0}), steps) == 0
    [(path, message)] = mistakes(conf.JobConf, {**JOB, freq: 5, steps: -1})
    assert (path, message) == ((steps,), "expected at least 0, got -1.")


def test_a_job_that_does_not_train_needs_no_updater() -> None:
    both = {"neuralnet": JOB["neuralnet"], "train_one_batch": JOB["train_one_batch"]}
    assert conf.JobConf.model_validate(both).train_steps == 0
    for key in ("updater", "train_steps"):
        alone = {name: value for name, value in JOB.items() if name != key}
        assert mistakes(conf.JobConf, alone) == [((key,), "this required key is missing.")]


def test_windows_of_text_are_as_long_as_those_who_read_them() -> None:
    text = {"name": "text", "type": "kCharRNN", "unroll_len": 1, "char_rnn_conf": {"path": "t"}}
    readers = [{"name": kind, "type": f"k{kind}", "srclayers": "text"} for kind in ("OneHot", "RNNLabel")]
    assert not list(net_findings({"unroll_len": 50, "layer": [text, *readers]}))
    [(path, message)] = net_findings({"unroll_len": 20, "layer": [text, *readers]})
    assert path == ("layer", 0, "char_rnn_conf", "unroll_len")
    assert message == "expected 20, the unroll_len of its reader 'OneHot', got 50."
    readers[1]["unroll_len"] = 7
    text["char_rnn_conf"] = {"unroll_len": 20}
    [(path, message)] = net_findings({"unroll_len": 20, "layer": [text, *readers]})
    assert message == "expected 7, the unroll_len of its reader 'RNNLabel', got 20."


def test_bounds_of_a_random_start_are_in_order() -> None:
    assert RNNDummyConf(low=2, high=2)
    assert mistakes(RNNDummyConf, {"low": 3, "high": 2.5}) == [
        (("high",), "expected at least low, which is 3, got 2.5.")
    ]


def test_nets_that_are_not_built_may_lack_a_source() -> None:
    net = {
        "layer": [
            {"name": "data", "type": "RecordInput", "include": "train"},
            {"name": "fc1", "type": "InnerProduct", "srclayers": "data"},
        ]
    }
    assert job(neuralnet=net)
    [(path, message)] = mistakes(conf.JobConf, {**JOB, "neuralnet": net, "test_freq": 1, "test_steps": 1})
    assert path == ("neuralnet", "layer", 1, "srclayers", 0)
    assert message == "layer 'data' is not in the test net, but 'fc1' is."


@pytest.mark.parametrize(
    ("shape", "is_wrong"), [([16, 12, 3], True), ([3, 16, 12], False), ([576], False), ([3, 8, 24], False)]
)
def test_axes_of_a_layer_have_one_order_in_all_phases(shape: list[int], is_wrong: bool) -> None:
    layers = [
        {"name": "data", "type": "RecordInput", "include": [phase], "store_conf": {"path": "x", "shape": each}}
        for phase, each in (("train", [3, 16, 12]), ("test", shape))
    ]
    found = [message for path, message in net_findings({"layer": layers}) if path[-1] == "shape"]
    assert len(found) == is_wrong
    for message in found:
        assert message.startswith(
            "[16, 12, 3] has other axes than [3, 16, 12], the shape of this layer in another phase"
        )


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, None),
        ({"shape": [1], "mean_value": 3}, None),
        ({"shuffle": "full"}, "shuffle differs"),
        ({"missing": "skip", "features": ["b"]}, "features, missing differ"),
    ],
)
def test_targets_are_of_the_records_of_the_features(changes: dict[str, Any], keys: str | None) -> None:
    store = {"path": "x.csv", "features": ["a"], "target": ["y"], "shape": [1], "batchsize": 4}
    layers = [
        {"name": "data", "type": "RecordInput", "include": ["train"], "store_conf": store},
        {"name": "y", "type": "TargetInput", "include": ["train"], "store_conf": {**store, **changes}},
    ]
    found = list(net_findings({"layer": layers}))
    assert [path for path, _ in found] == ([("layer", 1, "store_conf")] if keys else [])
    assert all(f"same store_conf: {keys}, so targets" in message for _, message in found)
    if keys == "shuffle differs":
        options = " ".join(f"--set 'neuralnet.layer[{name}].store_conf.shuffle=...'" for name in ("data", "y"))
        assert found[0][1].endswith(f", or pass {options}.")
    alone = list(net_findings({"layer": layers[1:]}))
    assert [message.split(",")[0] for _, message in alone] == [
        "no other input layer of the train net has the same store_conf"
    ]
