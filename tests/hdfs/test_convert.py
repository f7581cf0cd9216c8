"""Conversions from and to a real HDFS: the same files as on a local disk, and nothing else is left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.data.convert import plan as convert_plan
from singa_dask.data.convert.tasks import Task
from singa_dask.data.stores import open_store
from tests.contracts.records import assert_same, pixels, read_all, written
from tests.converting import convert

OPTIONS: dict[str, Any] = {"shuffle": 3, "split": {"a": 0.6, "b": 0.3}, "shards": 3, "verify": True}


def stopped(tasks: Sequence[Task]) -> list[int]:
    if tasks[0].step == "shard":
        tasks[0]()
        raise KeyboardInterrupt
    return [task() for task in tasks]


@pytest.mark.long
def test_a_source_that_is_replaced_by_one_of_its_length(folder: str, tmp_path: Path) -> None:
    source, target = fs.join(folder, "source.arrow"), fs.join(folder, "out", "x.arrow")

    def write(seed: int) -> dict[str, Any]:
        records = pixels(500, (4, 5), seed=seed)
        fs.write_atomic(source, Path(written(tmp_path, "arrow", records, f"{seed}")).read_bytes())
        return records

    write(1)
    length, said = fs.size(source), list[str]()
    with pytest.raises(KeyboardInterrupt):
        convert("arrow", [source], target, shards=3, run=stopped)
    records = write(2)
    assert fs.size(source) == length
    convert("arrow", [source], target, shards=3, log=said.append)
    assert said[0].endswith(f"removing an unfinished conversion, as {source} has changed.")
    with open_store(target.replace(".arrow", "-*.arrow")) as store:
        assert_same(read_all(store), records)


@pytest.mark.long
def test_from_and_to_hdfs_stopped_and_started_again(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_plan, "DIRECT_BYTES", 1000)
    monkeypatch.setattr(convert_plan, "RUN_BYTES", 5000)
    local = written(tmp_path, "arrow", pixels(500, (4, 5)), "source", block_bytes=1000)
    source = fs.join(folder, "source.arrow")
    fs.write_atomic(source, Path(local).read_bytes())
    (tmp_path / "out").mkdir()
    convert("arrow", [local], str(tmp_path / "out" / "{split}.arrow"), mean=str(tmp_path / "out/mean.bin"), **OPTIONS)
    out = fs.join(folder, "out")
    target, mean = fs.join(out, "{split}.arrow"), fs.join(out, "mean.bin")
    with pytest.raises(KeyboardInterrupt):
        convert("arrow", [source], target, mean=mean, **OPTIONS, run=stopped)
    assert fs.ls(out) == [".a.arrow.convert"]
    convert("arrow", [source], target, mean=mean, **OPTIONS)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert fs.ls(out) == names
    for name in set(names) - {"_singa"}:
        assert fs.read_bytes(fs.join(out, name)) == (tmp_path / "out" / name).read_bytes()
