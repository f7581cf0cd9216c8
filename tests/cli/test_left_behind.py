"""What commands leave on disk: files that were asked for, and the cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from singa_dask.data.stores import open_store
from singa_dask.estimators import SingaClassifier
from tests.cli.conftest import Call, Made
from tests.contracts.records import read_all

ROWS = [(i / 7, i * i % 11, "pear" if i % 3 else "apple") for i in range(120)]
TABLES = {
    "csv": "a,b,kind\n" + "".join(f"{a},{b},{kind}\n" for a, b, kind in ROWS),
    "jsonl": "".join(json.dumps({"a": a, "b": b, "kind": kind}) + "\n" for a, b, kind in ROWS),
}
TABLES_AT = "home/.cache/singa-dask/tables"


@pytest.mark.parametrize("suffix", sorted(TABLES))
def test_opening_a_table_leaves_its_index_in_the_cache(made: Made, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "data" / f"fruit.{suffix}"
    path.write_text(TABLES[suffix])
    made()
    with open_store(str(path), "table", label="kind") as store:
        read_all(store)
    found = sorted(made())
    folders, files = found[:3], found[3:]
    assert folders == ["home/.cache", "home/.cache/singa-dask", TABLES_AT]
    # that of text has its runs, too
    assert [Path(file).parent.as_posix() for file in files] == [TABLES_AT] * (1 if suffix == "parquet" else 2)
    assert (tmp_path / TABLES_AT).stat().st_mode & 0o77 == 0


@pytest.mark.cluster
def test_the_way_from_a_table_to_predictions(call: Call, made: Made, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "fruit.csv").write_text(TABLES["csv"])
    (data / "new.csv").write_text(TABLES["csv"])
    made()

    def outside_the_cache() -> set[str]:
        return {name for name in made() if not (TABLES_AT.startswith(name) or name.startswith(f"{TABLES_AT}/"))}

    def left(*command: object) -> set[str]:
        result = call(*command)
        assert result.exit_code == 0, result.output
        return outside_the_cache()

    assert left("data", "inspect", data / "fruit.csv", "--label", "kind") == set()
    assert left("init", data / "fruit.csv", "--label", "kind") == {"cwd/job.yaml"}
    for command in ("validate", "graph"):
        assert left(command, "job.yaml") == set()
    of_run = left("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=2")
    assert {Path(*Path(name).parts[:2]).as_posix() for name in of_run} == {"cwd/run"}
    job = ("job.yaml", "--init-from", "run")
    assert left("test", *job) == set()
    assert left("predict", *job, "--data", data / "new.csv") == set()
    assert left("predict", *job, "--data", data / "new.csv", "--out", "out.csv") == {"cwd/out.csv"}
    assert left("extract", *job, "--layer", "fc1", "--out", "fc1.csv") == {"cwd/fc1.csv"}
    assert left("export", "run", "--out", "net.npz") == {"cwd/net.npz"}
    assert left("show", "run") == set()
    x, y = [[a, b] for a, b, _ in ROWS], [kind for _, _, kind in ROWS]
    SingaClassifier(max_iter=1).fit(x, y).predict(x)
    assert outside_the_cache() == set()
