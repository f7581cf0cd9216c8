"""Weights of other programs become a checkpoint; what does not fit is told at once, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

import singa_dask as sd
from singa_dask.errors import ConfigError, DataError
from singa_dask.exports.matching import HEADING
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.cli.conftest import TINY, Call, call

__all__ = ["call"]

Arrays = dict[str, np.ndarray]


@pytest.fixture
def job(tmp_path: Path) -> sd.Job:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return sd.load(tmp_path / "tiny.yaml")


def arrays(seed: int = 0) -> Arrays:
    """Return arrays with the names of the params."""
    random = np.random.default_rng(seed)
    return {"w": random.normal(size=(10, 784)).astype(np.float32), "b": random.normal(size=10).astype(np.float32)}


def stored(url: object) -> Arrays:
    return {name: each.values for name, each in load_values(str(url)).items()}


@pytest.mark.parametrize("kind", ["npz", "safetensors", "arrays"])
def test_equal_names_need_no_map(job: sd.Job, tmp_path: Path, kind: str) -> None:
    given = arrays()
    source: Any = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez(source, **given)
    elif kind == "safetensors":
        save_file(given, source)
    url = sd.import_weights(given if kind == "arrays" else source, job, tmp_path / "out")
    found = stored(url)
    assert found.keys() == given.keys()
    for name, values in given.items():
        np.testing.assert_array_equal(found[name], values)
    with pytest.raises(ConfigError, match="out: exists already"):
        sd.import_weights(given, job, tmp_path / "out")


def test_a_directory_with_files_is_left_as_it_is(job: sd.Job, tmp_path: Path) -> None:
    source = tmp_path / "part-0-of-1.safetensors"
    save_file(arrays(), source)
    before = source.read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        sd.import_weights(source, job, tmp_path)
    assert [each.name for each in tmp_path.iterdir() if each.read_bytes() != before] == ["tiny.yaml"]


def test_a_map_transposes_and_cuts(job: sd.Job, tmp_path: Path) -> None:
    given = {
        "0.kernel": arrays()["w"].T.astype(np.float64),
        "0.biases": np.arange(20, dtype=np.float16),
        "steps": np.array(3),
    }
    text = "0.kernel: {param: w, transpose: true}\n0.biases: [{param: b, rows: [10, 20]}]\nsteps: null\n"
    (tmp_path / "map.yaml").write_text(text)
    found = stored(sd.import_weights(given, job, tmp_path / "out", tmp_path / "map.yaml"))
    np.testing.assert_array_equal(found["w"], arrays()["w"])
    np.testing.assert_array_equal(found["b"], np.arange(10, 20))
    assert found["w"].dtype == np.float32


def test_a_transposed_matrix_is_not_sure(job: sd.Job, tmp_path: Path) -> None:
    given = {"net.bias": arrays()["b"], "net.weight": arrays()["w"].T, "net.more": np.zeros(3)}
    with pytest.raises(ConfigError) as caught:
        sd.import_weights(given, job, tmp_path / "out")
    assert str(caught.value).splitlines() == [
        "weights: 2 of 3 arrays are ambiguous: the lines with # below.",
        "weights: unused arrays: net.more. To leave one out, map it to null.",
        HEADING,
        "# net.weight:",
        "#   param: w",
        "#   transpose: true",
        "# net.bias: b",
        "# net.more: null  # fits no param: shape (3,)",
    ]
    assert not (tmp_path / "out").exists()
    (tmp_path / "map.yaml").write_text(str(caught.value).partition(HEADING)[2].replace("\n# ", "\n"))
    found = stored(sd.import_weights(given, job, tmp_path / "out", str(tmp_path / "map.yaml")))
    np.testing.assert_array_equal(found["w"], arrays()["w"])
    np.testing.assert_array_equal(found["b"], arrays()["b"])


def test_one_candidate_by_layer_name_and_shape_is_taken(
    job: sd.Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"net.bias": arrays()["b"], "net.steps": np.array(3), "net.weight": arrays()["w"]}
    found = stored(sd.import_weights(given, job, tmp_path / "out"))
    np.testing.assert_array_equal(found["w"], arrays()["w"])
    np.testing.assert_array_equal(found["b"], arrays()["b"])
    assert caplog.messages == ["weights: arrays that are not floats are left out: net.steps."]


def net_job(*layers: dict[str, Any], **more: Any) -> sd.Job:
    data = sd.layer("RecordInput", name="data", path="none.arrow", shape=[4, 3, 3], batchsize=4)
    return sd.Job(sd.Net([data, *layers]), **more)


FILTERS: dict[str, Any] = {"kernel": 3, "pad": 1, "bias_term": False}


@pytest.mark.parametrize(
    ("layer", "given"),
    [
        # other filters with as many values
        (sd.layer("Convolution", num_filters=3, **FILTERS), {"x.weight": np.zeros((3, 4, 1, 9))}),
        # axes of TensorFlow: height and width first
        (sd.layer("Convolution", num_filters=3, **FILTERS), {"x.kernel": np.zeros((3, 3, 4, 3))}),
        # a square matrix may be transposed
        (sd.layer("InnerProduct", num_output=36, bias_term=False), {"x.weight": np.zeros((36, 36))}),
        # the same name, but the layer transposes
        (
            sd.layer("InnerProduct", name="x", num_output=36, bias_term=False, transpose=True),
            {"x.weight": np.zeros((36, 36))},
        ),
        # a word that says nothing
        (sd.layer("InnerProduct", num_output=5, bias_term=False), {"x.matrix": np.zeros((5, 36))}),
        # a bias more, or two weights
        (sd.layer("InnerProduct", num_output=5, bias_term=False), {"x.weight": np.zeros((5, 36)), "x.bias": [0.0] * 5}),
        (sd.layer("InnerProduct", num_output=5, bias_term=False), {"x.weight": np.zeros((5, 36)), "x.gamma": [0.0]}),
    ],
)
def test_what_is_not_sure_is_refused(tmp_path: Path, layer: dict[str, Any], given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="A map to complete"):
        sd.import_weights(given, net_job(layer), tmp_path / "out")


def test_a_table_does_not_show_the_order_of_axes(tmp_path: Path) -> None:
    square = sd.layer("InnerProduct", num_output=36, bias_term=False)
    words = sd.layer("Embedding", srclayers="data", vocab_size=20, feature_dim=5)
    job = net_job(square, words, sd.layer("InnerProduct", num_output=20, bias_term=False))
    given = {"x.weight": np.zeros((36, 36)), "words.weight": np.zeros((20, 5)), "y.weight": np.zeros((20, 5))}
    with pytest.raises(ConfigError, match="3 of 3 arrays are ambiguous"):
        sd.import_weights(given, job, tmp_path / "out")


def test_the_name_of_another_layer_speaks_against_a_shape(tmp_path: Path) -> None:
    job = net_job(sd.layer("BatchNorm", name="norm"), sd.layer("InnerProduct", name="bn", num_output=6))
    given = {f"body.bn.{word}": np.ones(4) for word in ("weight", "bias", "running_mean", "running_var")}
    with pytest.raises(ConfigError, match="4 of 4 arrays are ambiguous"):
        sd.import_weights(given, job, tmp_path / "out", partial=True)


def test_params_of_partitioned_layers_are_whole(tmp_path: Path) -> None:
    cluster = {"nworker_groups": 1, "nworkers_per_group": 2, "nserver_groups": 1, "nservers_per_group": 1}
    layer = sd.layer("InnerProduct", name="one", num_output=6, partition_dim=1)
    given = {"one.weight": np.ones((6, 36), np.float32), "one.bias": np.ones(6, np.float32)}
    found = stored(sd.import_weights(given, net_job(layer, cluster=cluster), tmp_path / "out"))
    assert {name: values.shape for name, values in found.items()} == {"one.weight": (6, 36), "one.bias": (6,)}


def random_net(seed: int) -> tuple[sd.Job, Arrays, dict[str, str]]:
    """Return a job, arrays of a program with its layers in any order, and the param of each array."""
    random = np.random.default_rng(seed)
    words = {"weight": "scale", "bias": "shift", "running_mean": "mean", "running_var": "variance"}
    layers, groups, n_in = [], [], 36
    for k in range(random.integers(2, 8)):
        n_out, is_norm = int(random.choice([36, 8, 8, 5])), bool(random.integers(2))
        kind = {"type": "BatchNorm"} if is_norm else {"type": "InnerProduct", "num_output": n_out}
        layers.append(sd.layer(name=f"l{k}", **kind))
        shapes = dict.fromkeys(words, (n_in,)) if is_norm else {"weight": (n_out, n_in), "bias": (n_out,)}
        head = str(random.choice([f"l{k}", f"body.{k}", f"net.l{k}"]))
        groups.append(
            {f"{head}.{word}": (f"l{k}.{words[word] if is_norm else word}", shape) for word, shape in shapes.items()}
        )
        n_in = n_in if is_norm else n_out
    is_transposed = bool(random.integers(2))
    flat = sd.layer("InnerProduct", name="flat", num_output=36, bias_term=False, transpose=is_transposed)
    truth = {name: each for k in random.permutation(len(groups)) for name, each in groups[k].items()}
    truth["flat.weight"] = ("flat.weight", (36, 36))
    given = {name: random.normal(size=shape).astype(np.float32) for name, (_, shape) in truth.items()}
    return net_job(flat, *layers), given, {name: param for name, (param, _) in truth.items()}


def test_random_nets_are_right_or_refused(tmp_path: Path) -> None:
    n_taken, n_sure = 0, 0
    for seed in range(20):
        job, given, truth = random_net(seed)
        try:
            found = stored(sd.import_weights(given, job, tmp_path / str(seed)))
        except ConfigError as error:
            sure = yaml.safe_load(str(error).partition(HEADING)[2]) or {}
            assert sure.items() <= truth.items(), seed
            n_sure += len(sure)
            continue
        n_taken += 1
        for name, values in given.items():
            np.testing.assert_array_equal(found[truth[name]], values, err_msg=f"{name} of {seed}")
    assert n_taken >= 5
    assert n_sure >= 100


def test_a_part_will_do_where_that_is_said(job: sd.Job, tmp_path: Path) -> None:
    assert stored(sd.import_weights({"w": arrays()["w"]}, job, tmp_path / "out", partial=True)).keys() == {"w"}


@pytest.mark.parametrize(
    ("given", "map", "messages"),
    [
        ({}, None, ["missing params: w, b"]),
        ({"x": np.zeros(10), "y": [1.0]}, {"x": {"param": "b", "plus": "y"}}, ["no array 'y' of shape (10,)"]),
        ({"w": np.zeros((784, 10)), "b": np.zeros(9)}, None, ["transpose: true", "param 'b' has (10,)"]),
        ({"w": np.zeros((10, 784), int), "b": np.full(10, np.nan)}, None, ["int64, expected floats", "not finite"]),
        (
            {"x": np.zeros(10)},
            {"x": "v", "y": "b"},
            ["no param 'v'. Known: b, w", "no array 'y'", "missing params: w, b"],
        ),
        ({"x": np.zeros(10)}, {"x": ["b", "b"]}, ["param 'b' is given twice"]),
        ({"x": np.zeros(10)}, {"x": {"param": "b", "transpos": True}}, ["unknown key 'transpos'. Did you mean"]),
        ({"x": np.zeros(10)}, {"x": {"param": "b", "transpose": [0, 2]}}, ["transpose: expected true, or the order"]),
        ({"x": np.zeros(10)}, {"x": {"param": "b", "transpose": [0, 1]}}, ["do not fit transpose"]),
        ({"x": np.zeros(10)}, {"x": {"param": "b", "rows": [1]}}, ["rows: expected two whole numbers"]),
        ({"x": np.zeros(10)}, {"x": 3}, ["expected the name of a param, or a map"]),
    ],
)
def test_all_mistakes_are_told(
    job: sd.Job, tmp_path: Path, given: Arrays, map: dict[str, Any] | None, messages: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        sd.import_weights(given, job, tmp_path / "out", map)
    for message in messages:
        assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "content"), [("x.npz", b"PK no zip"), ("x.safetensors", b"none"), ("x.bin", b"")])
def test_files_that_are_none(job: sd.Job, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"its arrays cannot be read.*Expected a file of safetensors"):
        sd.import_weights(tmp_path / name, job, tmp_path / "out")


def test_nothing_in_a_file_is_executed(job: sd.Job, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", w=np.array([print], object))
    with pytest.raises(DataError, match="its arrays cannot be read"):
        sd.import_weights(tmp_path / "x.npz", job, tmp_path / "out")


def test_the_command(call: Call, job: sd.Job, tmp_path: Path) -> None:
    save_file(arrays(), tmp_path / "w.safetensors")
    (tmp_path / "map.yaml").write_text("w: w\nb: b\n")
    out = tmp_path / "out"
    given = ("import", tmp_path / "w.safetensors", "--job", tmp_path / "tiny.yaml", "-o", out)
    result = call(*given, "--map", tmp_path / "map.yaml")
    assert (result.exit_code, result.stdout) == (0, f"{out}\n")
    result = call("test", tmp_path / "tiny.yaml", "--init-from", out, "--quiet")
    assert result.exit_code == 0, result.output
    result = call("test", tmp_path / "tiny.yaml", "--init-from", tmp_path / "w.safetensors", "--quiet")
    assert (
        "w.safetensors: this is a file of weights, not a checkpoint. Convert it with singa-dask import."
        in result.stderr
    )
    (tmp_path / "map.yaml").write_text("- w\n")
    result = call(*given, "--map", tmp_path / "map.yaml")
    assert (result.exit_code, "expected a map" in result.stderr) == (2, True)
