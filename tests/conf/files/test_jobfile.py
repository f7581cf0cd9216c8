"""Job files from the disk: broken ones tell every mistake and its place; good ones keep their places."""

from __future__ import annotations

import contextlib
import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from singa_dask import conf, layers
from singa_dask.conf.files import yaml_text
from singa_dask.conf.files.tree import plain
from singa_dask.conf.json_schema import field_docs
from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.neuron import InnerProductConf
from singa_dask.registry import Registry
from tests.selection import few_examples

BROKEN = sorted((Path(__file__).parent / "broken").glob("*.yaml"))
GOOD = """\
name: good
train_steps: 10
train_one_batch: {alg: kBP}
updater:
  type: SGD
  learning_rate: {type: Fixed, base_lr: 1e-2}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {path: digits.arrow, batchsize: 32, shape: 64}
    - name: fc1
      type: InnerProduct
      srclayers: data
      innerproduct_conf: {num_output: 32}
      param:
        - name: w1
          init: {type: Uniform, low: -0.1, high: 0.1}
cluster: {nworkers_per_group: 5}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD.replace("nworkers_per_group: 5", "nworkers_per_group: 2"))
    return path


def told(path: Path, **words: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        conf.load(path, **words)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_job(path: Path, registries: Any) -> None:
    """Each file says in its first lines what is to be told about it, in order."""
    text = path.read_text("latin-1")
    expected = re.findall(r"^# expect (.*)$", text, re.MULTILINE)
    lines = told(path, registries=registries)
    assert expected and len(lines) == len(expected), "\n".join(lines)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(f"{path}:{start}")
        assert not re.search(r"pydantic|https?://|type=|Traceback", line)


def test_good_job(good: Path, registries: Any) -> None:
    made = conf.load(str(good), registries=registries)
    assert made.text == good.read_text()
    assert made.job.updater.learning_rate.base_lr == 1e-2
    assert made.job.neuralnet.layer[1].type == "InnerProduct"
    plain = conf.load(good).job
    for layer, other in zip(made.job.neuralnet.layer, plain.neuralnet.layer, strict=True):
        assert layer.given_block(StoreConf) == other.given_block(StoreConf)
    assert conf.JobConf.from_json(plain.model_dump_json(), registries) == made.job


def test_kinds_without_a_registry_are_not_checked(good: Path, registries: Any) -> None:
    partial = {"layer": registries["layer"]}
    lines = told(good, sets=["updater.type=Mine", "neuralnet.layer[fc1].type=Mine"], registries=partial)
    assert len(lines) == 1 and "unknown layer type 'Mine'" in lines[0]


def test_sets_and_cluster_file(good: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "allreduce.yaml"
    cluster.write_text("cluster: {nworkers_per_group: 4, nservers_per_group: 4}\n")
    sets = ["cluster.nservers_per_group=2", "neuralnet.layer[fc1].innerproduct_conf.num_output=20"]
    made = conf.load(good, sets, cluster).job
    assert (made.cluster.nworkers_per_group, made.cluster.nservers_per_group) == (4, 2)
    assert made.neuralnet.layer[1].block(InnerProductConf).num_output == 20


def test_mistakes_of_sets_and_cluster_file_come_after_those_of_the_job(good: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "c.yaml"
    cluster.write_text("nworkers_per_group: 3\nnserver_group: 1\n")
    good.write_text(good.read_text().replace("SGD", "3").replace("batchsize: 32", "batchsize: [16, 16]"))
    sets = ["updater.learning_rate.base_lr=ten", "updater.momentun=1", "updater.clip_low.x=1"]
    lines = told(good, sets=sets, cluster_file=cluster)
    assert [line.removeprefix(f"{tmp_path}/") for line in lines[:3]] == [
        "good.yaml:5:9: updater.type: expected text, got 3. Put it in quotes.",
        "good.yaml:11:51: neuralnet.layer[data].store_conf.batchsize: "
        "expected one number, or one for each of 3 workers of a group, got 2.",
        "c.yaml:2:1: cluster.nserver_group: unknown key. Did you mean 'nserver_groups'? Known: "
        + ", ".join(sorted(conf.ClusterConf.model_fields))
        + ".",
    ]
    rest = "\n".join(lines[3:])
    base_lr = "--set updater.learning_rate.base_lr=ten: updater.learning_rate.base_lr: expected a number, got 'ten'."
    assert base_lr in rest
    assert "--set updater.momentun=1: updater.momentun: unknown key. Did you mean 'momentum'?" in rest
    assert "--set updater.clip_low.x=1: updater.clip_low: expected a number, got a mapping." in rest
    assert len(lines) == 6


def test_a_job_is_read_by_its_url(good: Path) -> None:
    assert conf.load(good.absolute().as_uri()).job == conf.load(good).job


@pytest.mark.parametrize("name", ["nothing.yaml", "."])
def test_files_that_cannot_be_read(tmp_path: Path, good: Path, name: str) -> None:
    [line] = told(tmp_path / name)
    assert line.startswith(f"{tmp_path / name}: cannot read this file: ")
    [line] = told(good, cluster_file=tmp_path / name)
    assert line.startswith(f"{tmp_path / name}: cannot read this file: ")


def test_byte_order_mark_is_no_mistake(good: Path) -> None:
    good.write_bytes(b"\xef\xbb\xbf" + good.read_bytes())
    assert conf.load(good).job.name == "good"


def test_later_errors_are_located(good: Path) -> None:
    made = conf.load(good, sets=["neuralnet.layer[fc1].param[0].lr_scale=2"])
    layer = ("neuralnet", "layer", 1)
    error = ConfigError(
        [
            Problem((*layer, "innerproduct_conf", "num_output"), "too many."),
            Problem((*layer, "srclayers", 0), "wrong shape."),
            Problem((*layer, "convolution_conf"), "missing."),
            Problem((*layer, "param", 0, "lr_scale"), "too big."),
            Problem((), "no such host."),
        ]
    )
    lines = str(made.locate(error)).splitlines()
    assert lines == [
        f"{good}:15:39: neuralnet.layer[fc1].innerproduct_conf.num_output: too many.",
        f"{good}:14:18: neuralnet.layer[fc1].srclayers: wrong shape.",
        f"{good}:12:7: neuralnet.layer[fc1].convolution_conf: missing.",
        "--set neuralnet.layer[fc1].param[0].lr_scale=2: neuralnet.layer[fc1].param[w1].lr_scale: too big.",
        f"{good}:1:1: no such host.",
    ]


def test_resolved_has_every_default(good: Path, tmp_path: Path, registries: Any) -> None:
    made = conf.load(good, registries=registries)
    text = made.resolved()
    assert "sync_freq: 1\n" in text and "momentum: 0.0\n" in text and "random_skip: 0" in text
    path = tmp_path / "resolved.yaml"
    path.write_text(text, encoding="utf-8")
    assert conf.load(path, registries=registries).job == made.job


NAMES = st.text("abcdefgh#0123-e", min_size=1, max_size=6)
LISTED = st.lists(st.integers(1, 9), max_size=3)
STORES = st.fixed_dictionaries(
    {},
    optional={
        "path": st.text("aB /:'\"#é\n.~", max_size=12),
        "separator": st.sampled_from([",", " ", "\t", "; "]),
        "shape": LISTED,
        "mean_value": st.floats(-1e9, 1e9),
        "shuffle": st.sampled_from(["none", "block", "full"]),
        "storage_options": st.dictionaries(NAMES, st.sampled_from([None, True, "yes", "1e3", 7, 1e-9, [1, None]])),
    },
)
LAYERS = st.fixed_dictionaries(
    {"name": NAMES, "type": st.sampled_from(["kTanh", "Pooling", "my.Layer"])},
    optional={
        "store_conf": STORES,
        "include": st.lists(st.sampled_from(["train", "val", "test"]), max_size=2),
        "pooling_conf": st.fixed_dictionaries(
            {}, optional={"kernel": st.integers(1, 9), "kernel_x": st.integers(1, 9)}
        ),
        "param": st.lists(st.fixed_dictionaries({"name": NAMES, "lr_scale": st.floats(0, 9)}), max_size=2),
        "location": st.integers(0, 3),
    },
)
JOBS = st.fixed_dictionaries(
    {
        "name": st.text(max_size=5).filter(str.isprintable),
        "train_one_batch": st.just({"alg": "BP"}),
        "updater": st.fixed_dictionaries(
            {"type": st.just("kSGD"), "learning_rate": st.just({"type": "Fixed"}), "delta": st.floats(1e-300, 1e300)}
        ),
        "neuralnet": st.fixed_dictionaries(
            {"layer": st.lists(LAYERS, min_size=1, max_size=4, unique_by=lambda layer: layer["name"])}
        ),
        "train_steps": st.integers(0, 10**12),
        "gpu": LISTED,
    }
)
OF_JOBS = {"layer": Registry[Any]("layer type")}
for name, part in {"Tanh": "Tanh", "Pooling": "Pooling", "my.Layer": "ReLU", "RecordInput": "RecordInput"}.items():
    OF_JOBS["layer"].register(name)(layers.LAYERS.find(part))


@few_examples(20)
@given(JOBS)
def test_resolved_loads_back_to_an_equal_job(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(yaml_text.dump(values), encoding="utf-8")
    made = conf.load(path, registries=OF_JOBS)
    assert made.job == conf.JobConf.model_validate(values, context={"registries": OF_JOBS})
    path.write_text(made.resolved(), encoding="utf-8")
    assert conf.load(path, registries=OF_JOBS).job == made.job


RUBBISH = st.recursive(
    st.sampled_from([None, True, -1, 0, 2.5, 10**30, "", "train", "kStep", "data", "fc1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "type", "step"]), inner),
    max_leaves=4,
)
TREE = yaml_text.parse(GOOD, "good.yaml")[0]
assert TREE is not None
WHOLE: dict[str, Any] = {
    **plain(TREE),
    "test_freq": 5,
    "updater": {
        "type": "RMSProp",
        "rmsprop_conf": {"rho": 0.9},
        "learning_rate": {"type": "FixedStep", "fixedstep_conf": {"step": [0, 5], "step_lr": [0.1, 0.2]}},
    },
}

WHOLE["neuralnet"]["layer"].append(
    {
        "name": "pool",
        "type": "kPooling",
        "srclayers": ["fc1"],
        "include": ["train"],
        "exclude": [],
        "unroll_conn_type": ["kUnrollOneToAll"],
        "partition_dim": 0,
        "pooling_conf": {"kernel": 3, "pool": "MAX"},
        "lrn_conf": {"local_size": 3},
        "char_rnn_conf": {"batchsize": 2},
    }
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(found for key, inner in items for found in places(inner, (*path, key)))]


@few_examples(25)
@given(st.lists(st.tuples(st.sampled_from(places(WHOLE)), RUBBISH), min_size=1, max_size=3))
def test_rubbish_anywhere_is_told_with_a_place(
    tmp_path_factory: pytest.TempPathFactory, registries: Any, changes: list[tuple[tuple[str | int, ...], Any]]
) -> None:
    values = copy.deepcopy(WHOLE)
    for (*above, last), rubbish in changes:
        inner: Any = values
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for key in above:
                inner = inner[key]
            inner[last] = rubbish
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(yaml_text.dump(values), encoding="utf-8")
    try:
        conf.load(path, registries=registries)
    except ConfigError as error:
        for problem in error.problems:
            assert problem.mark is not None and problem.mark.line > 0
            assert problem.message.endswith((".", "?"))
            assert not re.search(r"pydantic|https?://|input", problem.message)


def test_every_key_of_every_model_is_described() -> None:
    def models(model: type[BaseModel]) -> list[type[BaseModel]]:
        return [model, *(inner for sub in model.__subclasses__() for inner in models(sub))]

    # other tests of this process may have defined models
    ours = [model for model in models(conf.Conf) if model.__module__.startswith("singa_dask.")]
    assert len(ours) > 50
    docs = {model: field_docs(model) for model in ours}
    bare = [
        f"{model.__name__}.{key}"
        for model in ours
        for key in model.model_fields
        if not any(docs[cls].get(key) for cls in model.__mro__ if cls in docs)
    ]
    assert bare == []


def test_a_run_directory_names_the_job_in_it(tmp_path: Path) -> None:
    (tmp_path / "resolved.yaml").write_text("name: x")
    with pytest.raises(ConfigError, match=r"Is a directory. This is a run directory; its job is .*/resolved.yaml\."):
        conf.load(tmp_path)
