"""Checkpoints of SINGA's workers: found in a workspace, joined, empty ones passed over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.data.codecs.singa_blobs import StoredParam
from singa_dask.errors import CheckpointError, ConfigError
from singa_dask.runtime.checkpoints.lookup import find_values, load_values
from singa_dask.runtime.job.checks.job import check_job
from singa_dask.runtime.units.initial_state import InitialState
from tests.blobprotos import write_blobprotos
from tests.runtime.harness import mlp

Array = np.ndarray[Any, Any]
SHAPES = {"fc1.w": (32, 784), "fc1.b": (32,), "fc2.w": (10, 32), "fc2.b": (10,)}


def values(seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def put(path: Path, params: Mapping[str, Array]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_blobprotos({f"0#{name}": StoredParam(each, 7) for name, each in params.items()}))
    return str(path)


def started(url: str | list[str], job: JobConf | None = None) -> dict[str, Array]:
    """Return the initial values of a job that starts from there."""
    job = job or mlp()
    urls = [url] if isinstance(url, str) else url
    net = next(iter(check_job(job, init_from=urls).values()))
    start = InitialState(job, init_from=urls)
    return {owner.name: start.values(owner)[0] for owner in net.owners}


def same(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    assert got.keys() == wanted.keys()
    for name, each in wanted.items():
        np.testing.assert_array_equal(got[name], each)


@pytest.mark.parametrize("given", ["", "checkpoint", "checkpoint/step20-worker0"])
def test_the_newest_step_of_a_workspace(tmp_path: Path, given: str) -> None:
    put(tmp_path / "checkpoint" / "step9-worker0", values(1))
    put(tmp_path / "checkpoint" / "step20-worker0", values(2))
    (tmp_path / "checkpoint" / "step20-worker1").touch()
    (tmp_path / "visualization").mkdir()
    same(started(str(tmp_path / given)), values(2))


def test_empty_files_are_passed_over(tmp_path: Path) -> None:
    first = put(tmp_path / "step20-worker0", values(2))
    second = tmp_path / "step20-worker1"
    second.touch()
    same(started([first, str(second)]), values(2))
    same(started(str(second)), values(2))
    Path(first).write_bytes(b"")
    with pytest.raises(
        ConfigError, match=r"step20-worker1: no params: this file and the files of all other workers of SINGA are empty"
    ):
        started(str(second))


@pytest.mark.parametrize("given", [[""], ["step20-worker0"], ["step20-worker0", "step20-worker1"], ["step20-worker1"]])
def test_parts_are_joined(tmp_path: Path, given: list[str]) -> None:
    whole = values(3)
    for worker, rows in enumerate((slice(0, 16), slice(16, 32))):
        # fc2 is partitioned by records: the first worker alone has it
        rest = {name: each for name, each in whole.items() if name.startswith("fc2") and not worker}
        put(tmp_path / f"step20-worker{worker}", {name: whole[name][rows] for name in ("fc1.w", "fc1.b")} | rest)
    same(started([str(tmp_path / name) for name in given]), whole)


def test_parts_of_a_transposed_param_are_columns(tmp_path: Path) -> None:
    job = mlp().model_dump(mode="json", exclude_unset=True)
    job["neuralnet"]["layer"][1]["innerproduct_conf"]["transpose"] = True
    whole = values(4) | {"fc1.w": values(4)["fc1.w"].T.copy()}
    for worker in range(4):
        columns = slice(8 * worker, 8 * worker + 8)
        rest = {name: whole[name] for name in ("fc2.w", "fc2.b") if not worker}
        put(
            tmp_path / f"step20-worker{worker}",
            {"fc1.w": whole["fc1.w"][:, columns], "fc1.b": whole["fc1.b"][columns], **rest},
        )
    same(started(str(tmp_path), JobConf.model_validate(job)), whole)


def test_a_whole_param_is_not_joined_with_what_lies_beside_it(tmp_path: Path) -> None:
    put(tmp_path / "step20-worker0", values(5))
    put(tmp_path / "step20-worker1", {"fc1.w": values(6)["fc1.w"][:16]})
    same(started(str(tmp_path)), values(5))


def test_a_part_that_is_missing_is_told(tmp_path: Path) -> None:
    whole = values(7)
    url = put(tmp_path / "step20-worker0", whole | {"fc1.w": whole["fc1.w"][:16]})
    with pytest.raises(ConfigError, match=r"'fc1\.w': .*worker0 has shape \(16, 784\), but the net needs \(32, 784\)"):
        started(url)
    put(tmp_path / "step20-worker1", {"fc1.w": whole["fc1.w"][:8]})
    with pytest.raises(ConfigError, match=r"worker0 has parts of shapes \(16, 784\), \(8, 784\), but the net needs"):
        started(url)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"\xff" * 40)
    with pytest.raises(ConfigError) as caught:
        check_job(mlp(checkpoint_path=[str(tmp_path / name) for name in ("damaged", "nothing", "step2-worker0")]))
    assert [problem.path for problem in caught.value.problems] == [("checkpoint_path", i) for i in range(3)]
    assert isinstance(caught.value, CheckpointError)


def test_the_place_of_a_step_is_the_workspace_that_singa_would_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, workspace in (("step3-worker0", r"\."), ("checkpoint/step3-worker0", r"\."), ("a/step3-worker0", "a")):
        with pytest.raises(CheckpointError, match=f"a run in the workspace {workspace}: there is no checkpoint"):
            find_values(url)
    with pytest.raises(CheckpointError, match="memory://nowhere: no such file or directory"):
        load_values("memory://nowhere")
