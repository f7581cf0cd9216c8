"""What a run does not load, where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import job
from tests.runtime.processes import ROOT, program

__all__ = ["job"]

FAKE = "import sys; sys.stderr.write(f'{__name__} was imported\\n')\n"


@pytest.mark.long
@pytest.mark.cluster
def test_a_run_loads_neither_pandas_nor_bokeh(job: Path, tmp_path: Path) -> None:
    for name in ("pandas", "bokeh"):
        (tmp_path / "modules" / name).mkdir(parents=True)
        (tmp_path / "modules" / name / "__init__.py").write_text(FAKE)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "modules")}
    command = program("run", str(job), "--quiet", "--run-dir", str(tmp_path / "run"))
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_listing_jobs_loads_no_nets_and_no_records() -> None:
    script = (
        "import sys, singa_dask.cli.job_verbs; from singa_dask.runtime import RemoteJobs, connect;"
        "print(*(name for name in sys.modules if name.startswith('singa')))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not {f"singa_dask.{room}" for room in ("api", "conf", "fs", "layers", "net", "ops", "training")} & loaded


# of the rooms of layers, of stores and of inputs, and of others
NOT_OF_A_PERCEPTRON = {
    *(f"singa_dask.layers.{name}" for name in ("attention", "conv", "norm", "recurrent", "sequence")),
    *(f"singa_dask.data.stores.arrays.{name}" for name in ("array_store", "hdf5")),
    "singa_dask.data.stores.images.image",
    *(f"singa_dask.data.stores.messages.{name}" for name in ("lmdb", "tar", "tfrecord")),
    *(f"singa_dask.data.stores.tables.{name}" for name in ("jsonl_store", "table_store")),
    *("singa_dask.inputs.image_preprocess", "singa_dask.inputs.text"),
    *("PIL", "dask", "distributed", "filelock", "http.client", "lmdb", "prometheus_client"),
    *("hdfs_native", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet", "rich", "urllib.request"),
}
STAGES = """
import sys
from singa_dask.cli import main
main(["validate", "configs/digits/mlp.yaml"], standalone_mode=False)
print("loaded", *sys.modules)
main(["convert", "csv", sys.argv[1], sys.argv[2]], standalone_mode=False)
print("loaded", *sys.modules)
import singa_dask.exports.exporting
print("loaded", *sys.modules)
"""


@pytest.mark.long
def test_validate_convert_and_export_load_what_they_need(tmp_path: Path) -> None:
    source, target = tmp_path / "records.csv", tmp_path / "records.arrow"
    source.write_text("1,2,3\n0,1,1\n")
    command = [sys.executable, "-c", STAGES, str(source), str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    stages = [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("loaded ")]
    validate, convert, export = stages
    assert [name for name in NOT_OF_A_PERCEPTRON if name.startswith("singa") and find_spec(name) is None] == []
    assert {"singa_dask.layers.neuron", "numpy"} <= validate
    assert validate & NOT_OF_A_PERCEPTRON == set()
    assert target.exists()
    assert {"dask", "distributed"} & convert == set()
    assert {"dask", "distributed"} & export == set()
