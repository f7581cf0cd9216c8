"""Weights of other programs become a checkpoint; what does not fit is told at once, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import singa_dask as sd
from singa_dask.errors import ConfigError, DataError
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


def test_other_names_are_proposed_by_shape_and_order(job: sd.Job, tmp_path: Path) -> None:
    given = {"fc.bias": arrays()["b"], "fc.weight": arrays()["w"].T, "fc.more": np.zeros(3)}
    with pytest.raises(ConfigError) as caught:
        sd.import_weights(given, job, tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert lines[0] == "weights: missing params: w, b."
    assert lines[1].startswith("weights: unused arrays: fc.bias, fc.weight, fc.more.")
    assert not (tmp_path / "out").exists()
    (tmp_path / "map.yaml").write_text("\n".join(lines[3:]))
    found = stored(sd.import_weights(given, job, tmp_path / "out", str(tmp_path / "map.yaml")))
    np.testing.assert_array_equal(found["w"], arrays()["w"])
    np.testing.assert_array_equal(found["b"], arrays()["b"])


def test_a_part_will_do_where_that_is_said(job: sd.Job, tmp_path: Path) -> None:
    assert stored(sd.import_weights({"w": arrays()["w"]}, job, tmp_path / "out", partial=True)).keys() == {"w"}


@pytest.mark.parametrize(
    ("given", "map", "messages"),
    [
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
        ({"x": np.zeros(10)}, {"x": {"param": "b", "transpose": [0, 1]}}, ["has other axes than transpose"]),
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
    (tmp_path / "map.yaml").write_text("- w\n")
    result = call(*given, "--map", tmp_path / "map.yaml")
    assert (result.exit_code, "expected a map" in result.stderr) == (2, True)
