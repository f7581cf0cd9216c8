"""The oldest and the newest Python that the package is for: it installs there, and tests pass that need no servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.snippets import ROOT

TIMEOUT_S = 580
ROOMS = [
    "conf",
    "training",
    "cli/test_user_parts.py",
    "test_errors.py",
    "test_modules.py",
    "test_registry.py",
]

pytestmark = pytest.mark.soak


def candidates(version: str) -> Iterator[str]:
    """Yield programs that may be this Python: of pyenv's, and on the path."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path


def find_python(version: str) -> str | None:
    """Return a program that is this Python; one of pyenv's on the path may only say that it is not active."""
    asked = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for program in candidates(version):
        done = subprocess.run([program, "-c", asked], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return program
    return None


@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_another_python(version: str, tmp_path: Path) -> None:
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        pytest.skip(f"this is Python {version}")
    program = find_python(version)
    if program is None:
        pytest.skip(f"there is no Python {version} here")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    run(program, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", ".[images]", "pytest>=9", "pytest-timeout", "pytest-xdist", "hypothesis")
    rooms = [f"tests/{room}" for room in ROOMS]
    said = run(
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not long",
        f"--basetemp={tmp_path / 'tests'}",
        *rooms,
    )
    assert " passed" in said
