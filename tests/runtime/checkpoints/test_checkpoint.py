"""Checkpoints: written by any number of servers, read by any other; never half, never damaged without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.slices import slice_table
from singa_dask.conf import JobConf
from singa_dask.errors import CheckpointError, ConfigError
from singa_dask.runtime.checkpoints.author import Author, write_file, write_manifest
from singa_dask.runtime.checkpoints.checkpoint import (
    Checkpoint,
    SavedTensor,
    step_url,
    write_part,
)
from singa_dask.runtime.checkpoints.lookup import find, load_values
from singa_dask.runtime.checkpoints.manifest import make_manifest
from singa_dask.runtime.checkpoints.snapshots import store_in_memory
from singa_dask.runtime.job.checks.job import check_job
from singa_dask.runtime.units.initial_state import InitialState
from tests.runtime.harness import dense, mlp

GOLD = Path(__file__).parents[2] / "gold"
SHAPES = {"w": (5, 8), "b": (5,)}


def stored_values(names: dict[str, tuple[int, ...]] = SHAPES, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    return {
        name: {what: random.normal(size=shape).astype(np.float32) for what in ("value", "history")}
        for name, shape in names.items()
    }


def write(
    directory: str,
    step: int = 3,
    n_servers: int = 2,
    values: dict[str, dict[str, np.ndarray]] | None = None,
    incarnation: int = 0,
    **facts: Any,
) -> str:
    """Write a checkpoint as ``n_servers`` servers do, and return its URL."""
    values = values or stored_values()
    url = step_url(directory, step)
    names = list(values)
    table = slice_table([values[name]["value"].size for name in names], 1, n_servers)
    parts = []
    for server in range(n_servers):
        pieces = [
            SavedTensor(cut.param, cut.start, what, step, array.reshape(-1)[cut.start : cut.stop])
            for cut in table
            if cut.server == server
            for what, array in values[names[cut.param]].items()
        ]
        parts.append(
            write_part(
                partial(write_file, url, author=Author(incarnation=incarnation)), server, n_servers, pieces, names
            )
        )
    params = {name: {"shape": list(values[name]["value"].shape), "dtype": "float32"} for name in names}
    write_manifest(url, parts, {"job": "j", "step": step, "seed": 0, "params": params, "groups": {}, **facts})
    return url


def test_what_was_written_is_read(tmp_path: Path) -> None:
    url = write(str(tmp_path), groups={"0": {"step": 3, "cursors": {"train": {"data": {"row": 7}}}}})
    found = Checkpoint(url)
    assert (found.step, found.groups) == (3, {0: {"step": 3, "cursors": {"train": {"data": {"row": 7}}}}})
    assert found.params() == ["w", "b"]
    for name, arrays in stored_values().items():
        np.testing.assert_array_equal(found.values(name), arrays["value"])
        assert found.values(name).shape == SHAPES[name]
        assert found.version(name) == 3
    assert found.read("w", "no such state", 0, 5) is None
    assert sorted(path.name for path in Path(url).iterdir()) == [
        "manifest.json", "part-0-of-2.safetensors", "part-1-of-2.safetensors",
    ]  # fmt: skip


@given(
    shapes=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4),
    written_by=st.integers(1, 5),
    read_by=st.integers(1, 5),
    step=st.integers(0, 10**6),
)
@pytest.mark.long
def test_any_number_of_servers_reads_what_any_other_wrote(
    shapes: list[tuple[int, ...]], written_by: int, read_by: int, step: int
) -> None:
    names = {f"p{i}": shape for i, shape in enumerate(shapes)}
    values = stored_values(names, seed=step)
    directory = f"memory://checkpoints/{written_by}-{read_by}"
    found = Checkpoint(write(directory, step, written_by, values))
    table = slice_table([int(np.prod(shape)) for shape in shapes], 1, read_by)
    for cut in table:
        for what, array in values[f"p{cut.param}"].items():
            got = found.read(f"p{cut.param}", what, cut.start, cut.stop)
            assert got is not None
            assert got.tobytes() == array.reshape(-1)[cut.start : cut.stop].tobytes()


def test_without_a_manifest_there_is_no_checkpoint(tmp_path: Path) -> None:
    write(str(tmp_path / "checkpoint"), step=3)
    broken = write(str(tmp_path / "checkpoint"), step=9)
    (Path(broken) / "manifest.json").unlink()
    assert find(str(tmp_path)).endswith("step-3")
    with pytest.raises(CheckpointError, match=r"step-9.*manifest"):
        Checkpoint(broken)


def test_a_manifest_is_not_written_before_its_parts(tmp_path: Path) -> None:
    parts = [{"file": "part-0-of-1.safetensors", "bytes": 1, "sha256": "", "tensors": []}]
    with pytest.raises(CheckpointError, match=r"part-0-of-1\.safetensors was written .* cannot be seen .*--run-dir"):
        write_manifest(str(tmp_path / "step-1"), parts, {})
    assert not (tmp_path / "step-1" / "manifest.json").exists()


@pytest.mark.parametrize("where", ["", "checkpoint", "checkpoint/step-20"])
def test_the_newest_checkpoint_is_found_in_a_run_a_directory_or_a_step(tmp_path: Path, where: str) -> None:
    for step in (3, 20, 100):
        write(str(tmp_path / "checkpoint"), step=step)
    wanted = 20 if "step" in where else 100
    found = find(str(tmp_path / where))
    assert Checkpoint(found).step == wanted


def test_no_checkpoint_is_said_with_what_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "checkpoint" / "step-x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"runs: no such file or directory\. Did you mean 'run'\?$"):
        find(str(tmp_path / "runs"))
    with pytest.raises(CheckpointError, match=r"run: no complete checkpoint here\. Expected step-<n>/manifest\.json"):
        find(str(tmp_path / "run"))


def test_a_checkpoint_may_lie_at_any_url() -> None:
    write("memory://runs/one/checkpoint", step=4)
    url = find("memory://runs/one")
    assert url.startswith("memory://")
    np.testing.assert_array_equal(load_values("memory://runs/one")["w"].values, stored_values()["w"]["value"])


def flip(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage", [flip, lambda content: content[:-1], lambda content: b"", lambda content: content + b"\0"]
)
def test_a_damaged_part_is_refused_by_name(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = Path(write(str(tmp_path))) / "part-1-of-2.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"part-1-of-2\.safetensors: damaged"):
        load_values(str(tmp_path))


def test_a_missing_part_is_refused_by_name(tmp_path: Path) -> None:
    (Path(write(str(tmp_path))) / "part-0-of-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"part-0-of-2\.safetensors: cannot be read"):
        load_values(str(tmp_path))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": "singa-dask checkpoint 99"}', '"text"'])
def test_a_manifest_that_is_not_one_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest|format"):
        Checkpoint(str(tmp_path))


def test_any_changed_byte_of_a_manifest_is_found(tmp_path: Path) -> None:
    path = Path(write(str(tmp_path), groups={"0": {"step": 3, "cursors": {}}})) / "manifest.json"
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytes([content[place] ^ 1 << place % 7])
        path.write_bytes(content[:place] + changed + content[place + 1 :])
        with pytest.raises(CheckpointError, match=r"manifest\.json: (damaged|format)"):
            Checkpoint(str(path.parent))


def test_a_manifest_without_a_checksum_is_read(tmp_path: Path) -> None:
    path = Path(write(str(tmp_path))) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["checksum"], manifest["sha256"]
    path.write_text(json.dumps(manifest))
    np.testing.assert_array_equal(Checkpoint(str(path.parent)).values("w"), stored_values()["w"]["value"])


def test_a_part_of_an_older_incarnation_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    url = write(str(tmp_path), incarnation=2)
    before = Checkpoint(url).values("w")
    for incarnation in (0, 1):
        piece = SavedTensor(0, 0, "value", 3, np.zeros(20, np.float32))
        for index in (0, 1):
            write_part(partial(write_file, url, author=Author(incarnation=incarnation)), index, 2, [piece], ["w"])
    found = Checkpoint(find(str(tmp_path)))
    np.testing.assert_array_equal(found.values("w"), before)
    files = [f"part-{index}-of-2.life-2.safetensors" for index in (0, 1)]
    assert [part["file"] for part in found.manifest["parts"]] == files


def test_a_gap_between_pieces_is_not_read_over(tmp_path: Path) -> None:
    path = Path(write(str(tmp_path))) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["checksum"], manifest["sha256"]
    for part in manifest["parts"]:
        part["tensors"] = [each for each in part["tensors"] if each["start"] == 0]
    path.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"w/value has \d+ of 40 values"):
        Checkpoint(str(path.parent)).values("w")


# -- parts that are not in files -------------------------------------------------------------------


def in_memory() -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a manifest, and the parts by file, of a checkpoint that is nowhere else."""
    values, files, parts = stored_values(), dict[str, bytes](), []

    def keep(step: int, file: str, content: bytes, known: int) -> list[str]:
        files[file] = content
        return ["here"]

    for index, name in enumerate(values):
        pieces = [SavedTensor(index, 0, what, 3, array.reshape(-1)) for what, array in values[name].items()]
        parts.append(write_part(partial(store_in_memory, keep, 3, 0, incarnation=4), index, 2, pieces, list(values)))
    params = {name: {"shape": list(shape), "dtype": "float32"} for name, shape in SHAPES.items()}
    return make_manifest(parts, {"job": "j", "step": 3, "seed": 0, "params": params, "groups": {}}), files


def test_parts_come_from_a_function() -> None:
    manifest, files = in_memory()
    assert list(files) == ["step-3/part-0-of-2.life-4.safetensors", "step-3/part-1-of-2.life-4.safetensors"]
    found = Checkpoint.from_manifest(manifest, files.get, "snapshot of step 3")
    assert found.step == InitialState(mlp(), found).step == 3
    for name, arrays in stored_values().items():
        np.testing.assert_array_equal(found.values(name), arrays["value"])
        np.testing.assert_array_equal(found.whole(name, "history"), arrays["history"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("damage", "told"), [(flip, "damaged"), (lambda content: None, "cannot be read")])
def test_a_part_that_is_not_right_is_named(damage: Callable[[bytes], bytes | None], told: str) -> None:
    manifest, files = in_memory()
    found = Checkpoint.from_manifest(manifest, lambda file: damage(files[file]), "snapshot of step 3")
    with pytest.raises(CheckpointError, match=rf"^snapshot of step 3/step-3/part-0-of-2.*: {told}"):
        found.values("w")


# -- what a job is told ----------------------------------------------------------------------------


def of_job(job: JobConf, directory: str, **changes: tuple[int, ...] | None) -> str:
    """Write a checkpoint for a job's params; ``changes`` gives some of them another shape, or leaves them out."""
    params = {"fc1.w": (32, 784), "fc1.b": (32,), "fc2.w": (10, 32), "fc2.b": (10,)}
    shapes = {name: changes.get(name.replace(".", "_"), shape) for name, shape in params.items()}
    return write(directory, values=stored_values({name: shape for name, shape in shapes.items() if shape}))


def test_a_checkpoint_of_another_seed_is_refused(tmp_path: Path) -> None:
    url = of_job(mlp(), str(tmp_path))
    check_job(mlp(), resume=url)
    with pytest.raises(CheckpointError, match=r"made with seed 0, but the job has seed 3\..*--init-from"):
        check_job(mlp(seed=3), resume=url)
    check_job(mlp(seed=3), init_from=[url])


@pytest.mark.parametrize("how", ["resume", "init_from"])
def test_a_param_of_another_shape_is_refused(tmp_path: Path, how: str) -> None:
    url = of_job(mlp(), str(tmp_path), fc1_w=(31, 784))
    with pytest.raises(
        CheckpointError, match=r"'fc1\.w': .*step-3 has shape \(31, 784\), but the net needs \(32, 784\)"
    ):
        check_job(mlp(), **{how: url if how == "resume" else [url]})  # type: ignore[arg-type]


def test_a_resumed_run_needs_every_param(tmp_path: Path) -> None:
    url = of_job(mlp(), str(tmp_path), fc2_b=None)
    with pytest.raises(CheckpointError, match=r"no param 'fc2\.b'\. Known: fc1\.b, fc1\.w, fc2\.w"):
        check_job(mlp(), resume=url)
    check_job(mlp(), init_from=[url])  # its init says how it starts


def test_params_that_nothing_gives_a_value_are_all_said(tmp_path: Path) -> None:
    layers = mlp().model_dump(mode="json")["neuralnet"]["layer"]
    layers[1]["param"] = [{"name": "fc1.w"}, {"name": "fc1.b"}]
    job = mlp(neuralnet={"layer": layers})
    with pytest.raises(ConfigError) as caught:
        check_job(job)
    assert [problem.path for problem in caught.value.problems] == [
        ("neuralnet", "layer", 1, "param", 0), ("neuralnet", "layer", 1, "param", 1),
    ]  # fmt: skip
    assert "'fc1.w' has no init, and no checkpoint gives its values" in str(caught.value)
    check_job(job, init_from=[of_job(job, str(tmp_path))])


def test_files_that_singa_wrote_are_read() -> None:
    stored = load_values(str(GOLD / "start" / "mlp_init.bin"))
    assert {name: each.values.shape for name, each in stored.items()} == {
        "w1": (32, 784), "b1": (32,), "w2": (10, 32), "b2": (10,),
    }  # fmt: skip
    assert all(np.abs(each.values).max() > 0 for each in stored.values())


def test_what_is_neither_is_said(tmp_path: Path) -> None:
    (tmp_path / "some.bin").write_bytes(b"\xff" * 40)
    for place in ("some.bin", "nothing"):
        with pytest.raises((CheckpointError, OSError), match=place):
            load_values(str(tmp_path / place))


def test_later_values_win(run_job: Callable[..., Any], tmp_path: Path) -> None:
    layers = [mlp().model_dump(mode="json")["neuralnet"]["layer"][0], dense("fc", "data", 10)]
    layers.append({"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "data"]})
    first = write(str(tmp_path / "a"), values=stored_values({"fc.w": (10, 784), "fc.b": (10,)}, seed=1))
    second = write(str(tmp_path / "b"), values=stored_values({"fc.b": (10,)}, seed=2))
    job = mlp(neuralnet={"layer": layers}, train_steps=1, updater={
        "type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.0},
    })  # fmt: skip
    params = run_job(job, init_from=[first, second]).params()
    for name, seed, names in (("fc.w", 1, {"fc.w": (10, 784), "fc.b": (10,)}), ("fc.b", 2, {"fc.b": (10,)})):
        np.testing.assert_array_equal(params[name], stored_values(names, seed=seed)[name]["value"])
