"""--set and cluster files."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask.conf.files.cluster_file import replace_cluster
from singa_dask.conf.files.overrides import apply_set
from singa_dask.conf.files.tree import TreeMap, plain
from singa_dask.conf.files.yaml_text import parse
from singa_dask.errors import ConfigError

TEXT = """
updater: {momentum: 0.9, rmsprop_conf: }
neuralnet:
  layer:
    - {name: data, include: train}
    - {name: data, include: test}
    - name: fc1
      param: {name: w1}
cluster: {nworker_groups: 3}
"""


def tree() -> TreeMap:
    node, problems = parse(TEXT, "job.yaml")
    assert isinstance(node, TreeMap) and not problems
    return node


def changed(*sets: str) -> Any:
    root = tree()
    assert [problem for text in sets for problem in apply_set(root, text)] == []
    return plain(root)


def test_values_are_yaml() -> None:
    got = changed("updater.momentum=5e-1", "updater.type=SGD", "gpu=[0, 1]", "name='12'", "updater.clip_low=")
    assert got["updater"] == {"momentum": 0.5, "rmsprop_conf": None, "type": "SGD", "clip_low": None}
    assert (got["gpu"], got["name"]) == ([0, 1], "12")


def test_a_key_replaces_the_one_that_it_excludes() -> None:
    got = changed("epochs=2", "train_steps=3", "num_openblas_threads=4", "threads=5")
    assert (got["train_steps"], got["threads"]) == (3, 5)
    assert got.keys().isdisjoint({"epochs", "num_openblas_threads"})


def test_blocks_are_made_where_there_are_none() -> None:
    got = changed("updater.rmsprop_conf.rho=0.9", "updater.learning_rate.step_conf.gamma=0.1")
    assert got["updater"]["rmsprop_conf"] == {"rho": 0.9}
    assert got["updater"]["learning_rate"] == {"step_conf": {"gamma": 0.1}}


def test_items_by_name_and_by_index() -> None:
    layers = changed(
        "neuralnet.layer[fc1].param[w1].lr_scale=2",
        "neuralnet.layer[1].include=val",
        "neuralnet.layer[data].store_conf={batchsize: 8}",
        "neuralnet.layer[0].store_conf.batchsize=9",
    )["neuralnet"]["layer"]
    assert layers == [
        {"name": "data", "include": "train", "store_conf": {"batchsize": 9}},
        {"name": "data", "include": "val", "store_conf": {"batchsize": 8}},
        {"name": "fc1", "param": [{"name": "w1", "lr_scale": 2}]},
    ]


def test_a_whole_item() -> None:
    assert changed("neuralnet.layer[2]={name: fc9}")["neuralnet"]["layer"][2] == {"name": "fc9"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("momentum", "--set momentum: expected KEY=VALUE, such as"),
        ("=3", "--set =3: expected KEY=VALUE"),
        ("a..b=3", "--set a..b=3: expected KEY=VALUE"),
        ("a=[1", "--set a=[1: not valid YAML: "),
        (
            "neuralnet.layer[fc2].type=x",
            "--set neuralnet.layer[fc2].type=x: neuralnet.layer: there is no item 'fc2'. "
            "Did you mean 'fc1'? Known: data, fc1.",
        ),
        ("neuralnet.layer[9].type=x", "--set neuralnet.layer[9].type=x: neuralnet.layer: there is no item '9'. "),
        ("neuralnet.layer.type=x", "--set neuralnet.layer.type=x: neuralnet.layer: this is a list; expected an item"),
        ("updater.momentum.x=1", "--set updater.momentum.x=1: updater.momentum: this is a value without keys."),
        ("checkpoint[0]=1", "--set checkpoint[0]=1: checkpoint: there is no item '0': the job has no such list."),
        ("a={b: 1, b: 2}", "--set a={b: 1, b: 2}: b: duplicate key."),
    ],
)
def test_mistakes(text: str, told: str) -> None:
    [problem] = apply_set(tree(), text)
    assert str(problem).startswith(told)


@pytest.mark.parametrize("text", ["cluster: {sync_freq: 2}\n", "sync_freq: 2\n"])
def test_cluster_file_with_and_without_its_head(text: str) -> None:
    root = tree()
    assert replace_cluster(root, text, "c.yaml") == []
    assert plain(root)["cluster"] == {"sync_freq": 2}
    assert root.entries["cluster"].place.file == "c.yaml"


def test_cluster_file_holds_nothing_else() -> None:
    [problem] = replace_cluster(tree(), "cluster: {}\nname: x\n", "c.yaml")
    assert str(problem) == "c.yaml:2:1: name: a cluster file has only the key cluster. Remove this key."


def test_problems_of_a_bare_cluster_file_have_the_whole_path() -> None:
    [problem] = replace_cluster(tree(), "sync_freq: 1\nsync_freq: 2\n", "c.yaml")
    assert problem.path == ("cluster", "sync_freq")


@pytest.mark.parametrize("text", ["", "- 1\n", "hello\n"])
def test_cluster_file_without_keys(text: str) -> None:
    with pytest.raises(ConfigError, match=r"c\.yaml:1:1: expected the keys of a cluster"):
        replace_cluster(tree(), text, "c.yaml")
