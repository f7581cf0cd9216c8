"""The wheel is the whole package: it runs in a fresh environment, far from this repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.snippets import ROOT, copy_repository

TIMEOUT_S = 400

pytestmark = pytest.mark.long


def run(command: Sequence[object], cwd: Path) -> str:
    """Run a command without what this process has on its paths, and return what it printed on stdout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment["SINGA_DASK_CACHE"] = str(cwd / ".cache")
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution from a copy of what git tracks, and the wheel from that."""
    copy = copy_repository(tmp_path_factory.mktemp("source") / "copy")
    run([sys.executable, "-m", "build"], copy)
    (made,) = (copy / "dist").glob("singa_dask-*.whl")
    return made


SHARED = "packages of the tests"
OWN = "packages of its own"
BEFORE_A_RELEASE = pytest.param(OWN, marks=pytest.mark.soak)


@pytest.fixture(scope="module", params=[SHARED, BEFORE_A_RELEASE])
def bin_directory(wheel: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a fresh environment, and return where its programs are.

    The environment finds the packages with which these tests run, or else installs what the wheel needs.
    """
    place, is_shared = tmp_path_factory.mktemp("fresh") / "venv", request.param == SHARED
    venv.create(place, with_pip=not is_shared)
    python = place / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python] if is_shared else [python, "-m", "pip"]
    run([*pip, "install", "-q", *(["--no-deps"] if is_shared else []), wheel], place.parent)
    if is_shared:
        (packages,) = place.glob("lib/python3*/site-packages")
        # Python reads no .pth file of these directories, so it does not find an editable installation
        (packages / "shared.pth").write_text("\n".join({sysconfig.get_path(name) for name in ("purelib", "platlib")}))
    return place / "bin"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that has the configs and the data, and nothing else of the repository."""
    made = tmp_path_factory.mktemp("place")
    for name in ("configs", "data/digits"):
        shutil.copytree(ROOT / name, made / name)
    return made


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if name.startswith("singa_dask/")}
    assert [name for name in names if name not in packed and ".dist-info/" not in name] == []
    files = (path for path in (ROOT / "singa_dask").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packed == {path.relative_to(ROOT).as_posix() for path in files}
    assert {"singa_dask/py.typed"} < packed
    assert any(name.endswith(".cu") for name in packed)


@pytest.mark.parametrize(
    ("bin_directory", "n_steps", "least"),
    [(SHARED, 500, 0.9), pytest.param(OWN, 2500, 0.95, marks=pytest.mark.soak)],
    indirect=["bin_directory"],
)
def test_the_first_command_of_readme_runs(bin_directory: Path, n_steps: int, least: float, place: Path) -> None:
    command = (ROOT / "README.md").read_text().partition(".venv/bin/singa-dask ")[2].partition("\n")[0].split()
    command += [] if n_steps == 2500 else ["--set", f"train_steps={n_steps}"]
    said = run([bin_directory / "singa-dask", *command, "--json"], place)
    summary = json.loads(said.splitlines()[-1])
    assert (summary["state"], summary["steps"]) == ("done", n_steps)
    assert summary["test"]["accuracy"] >= least


@pytest.mark.parametrize("command", ["singa-dask --version", "singa-dask --help", "python -m dask singa --help"])
def test_its_programs_answer(bin_directory: Path, place: Path, command: str) -> None:
    program, *arguments = command.split()
    said = run([bin_directory / program, *arguments], place)
    wanted = wheel_version(bin_directory) if "--version" in command else "validate"
    assert wanted in said


def wheel_version(bin_directory: Path) -> str:
    """Return the version of the package that is installed, as its metadata have it."""
    code = "from importlib.metadata import version; print(version('singa-dask'))"
    return run([bin_directory / "python", "-c", code], bin_directory).strip()


@pytest.mark.parametrize("bin_directory", [BEFORE_A_RELEASE], indirect=True)
def test_it_brings_dasks_programs(bin_directory: Path, place: Path) -> None:
    assert "validate" in run([bin_directory / "dask", "singa", "--help"], place)
    for program in ("dask-scheduler", "dask-worker"):
        assert f"Usage: {program} [OPTIONS]" in run([bin_directory / program, "--help"], place)
