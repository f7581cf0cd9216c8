"""The configs of the repository: right, commented, and with a schema that is up to date."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from singa_dask.cli import job
from singa_dask.conf import Phase
from singa_dask.jobs.checks import complete
from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.checks.job import check_job
from singa_dask.runtime.planning.nets import build_nets
from tests.cli.conftest import ROOT

CONFIGS = ROOT / "configs"
JOBS = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "cluster")
CLUSTERS = sorted((CONFIGS / "cluster").glob("*.yaml"))
SCHEMA = CONFIGS / "job.schema.json"


def name(path: Path) -> str:
    return path.relative_to(CONFIGS).as_posix()


@pytest.mark.long
def test_the_schema_is_what_the_command_prints() -> None:
    # in a process of its own: other tests register layers
    printed = subprocess.run([sys.executable, "-m", "dask", "singa", "schema"], capture_output=True, text=True)
    assert SCHEMA.read_text() == printed.stdout, "singa-dask schema > configs/job.schema.json"


@pytest.mark.parametrize("path", [*JOBS, *CLUSTERS], ids=name)
def test_the_first_line_names_the_schema(path: Path) -> None:
    match = re.fullmatch(
        r"# yaml-language-server: \$schema=([^#]+)(?:#/(\w+)/(\w+))?", path.read_text().splitlines()[0]
    )
    assert match
    assert (path.parent / match[1]).resolve() == SCHEMA
    if match[2]:
        assert json.loads(SCHEMA.read_text())[match[2]][match[3]]


@pytest.mark.parametrize("path", JOBS, ids=name)
def test_jobs_are_right(path: Path) -> None:
    made = job.read(str(path), (), None).job
    if made.checkpoint_path:  # what another job has to leave is not there
        build_nets(made)
    else:
        check_job(complete(job.read(str(path), (), None)).job, check_sources=False)


@pytest.mark.parametrize("folder", ["rbm", "rbm/fashion"])
def test_a_stack_of_rbms_finds_its_params(folder: str) -> None:
    left: dict[str, dict[str, tuple[int, ...]]] = {}
    for path in [*sorted((CONFIGS / folder).glob("rbm?.yaml")), CONFIGS / folder / "autoencoder.yaml"]:
        made = job.read(str(path), (), None).job
        given = {name: shape for run in made.checkpoint_path for name, shape in left[run].items()}
        owners = build_nets(made)[Phase.TRAIN].owners
        wanted = {owner.name: owner.shape for owner in owners if owner.conf.init is None}
        assert {name: given.get(name) for name in wanted} == wanted
        left[f"runs/{made.name}"] = {owner.name: owner.shape for owner in owners}
        assert f"--run-dir runs/{made.name}\n" in path.read_text()
    assert len(left) == 5


def test_the_jobs_in_the_docs_are_right(tmp_path: Path) -> None:
    texts = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "job-files.md").read_text(), re.DOTALL)
    assert len(texts) == 2
    for text in texts:
        (tmp_path / "job.yaml").write_text(text)
        check_job(complete(job.read(str(tmp_path / "job.yaml"), (), None)).job, check_sources=False)


@pytest.mark.parametrize("path", [*JOBS, *CLUSTERS], ids=name)
def test_the_first_use_of_each_key_is_explained(path: Path) -> None:
    lines = path.read_text().splitlines()
    explained, missing = {"name", "type", "srclayers"}, []
    for before, line in pairwise(lines):
        match = re.fullmatch(r" *(?:- )?(\w+): +\S.*", line)
        if not match or match[1] in explained:
            continue
        # one comment may speak of a key and of the one after it
        if "#" in before or re.match(r" *(\w+): ", before):
            explained.add(match[1])
        else:
            missing.append(line.strip())
    assert missing == []


@pytest.mark.parametrize("path", CLUSTERS, ids=name)
def test_a_cluster_fits_two_processes_of_two_threads(path: Path) -> None:
    digits = job.read(str(CONFIGS / "digits" / "mlp.yaml"), (), str(path)).job
    layout = plan_processes(digits.cluster)
    assert len(layout.processes) == (1 if path.stem == "single" else 2)
    assert layout.n_threads == 2
