"""A directory of a new user, and the command line as it is typed there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from singa_dask.cli import main
from tests.cli.conftest import ROOT, TINY
from tests.docs import material

WITHIN_S = 240
STORE = "neuralnet.layer[data].store_conf"


@dataclass
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class Desk:
    """A directory with ``job.yaml``, six small steps on the digits.

    Attributes
    ----------
    directory : Path
    job : str
        Text of ``job.yaml``.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.job = TINY
        self.write("job.yaml", TINY)

    def write(self, name: str, text: str) -> Path:
        """Write a file, and return its path."""
        path = self.directory / name
        path.write_text(text)
        return path

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a shell in which that of this process is active."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {
            **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            "PATH": path,
            "PYTHONFAULTHANDLER": "1",
            **(more or {}),
        }

    def start(self, *arguments: object, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start ``singa-dask`` with some arguments, in a process group of its own."""
        return subprocess.Popen(["singa-dask", *map(str, arguments)], cwd=self.directory, env=self.environ(environment),
                                executable=str(Path(sys.executable).parent / "singa-dask"),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)  # fmt: skip

    def end(self, process: subprocess.Popen[str], stdin: str = "") -> Done:
        """Wait until a command has ended; it shows no traceback of ours."""
        try:
            out, err = process.communicate(stdin, timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # Python shows what its threads were doing
            _, err = process.communicate()
            raise AssertionError(f"not within {WITHIN_S} s:\n{err}") from None
        assert "Traceback" not in err, err
        return Done(process.returncode, out, err)

    def singa(self, *arguments: object, stdin: str = "", environment: Mapping[str, str] | None = None) -> Done:
        """Run ``singa-dask`` with some arguments in this process; it shows no traceback of ours."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.directory)
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            done = CliRunner().invoke(main, list(map(str, arguments)), input=stdin, prog_name="singa-dask")
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Give a directory with a job, pictures, and arrays in a form that other libraries have."""
    random = np.random.default_rng(0)
    labels = np.arange(40) % 10
    np.savez(tmp_path / "nhwc.npz", images=random.integers(0, 256, (40, 32, 32, 3), np.uint8), labels=labels)
    np.savez(tmp_path / "wide.npz", images=random.integers(0, 256, (40, 28, 28), np.uint8), labels=labels + 2**32)
    rows = np.column_stack([labels, random.integers(0, 256, (40, 784))]).astype(str)
    rows[5, 3] = ""
    (tmp_path / "empty.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    material.write_photos(tmp_path / "photos")
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    return Desk(tmp_path)
