"""The code blocks of a document, run in order as a reader would paste them, in a copy of the repository.

A test says what differs from the document in two tables: ``substitutions``, from text of the document to what runs in
its place, and ``not_run``, from lines that cannot run here to the reason. `Session.unused` returns the entries that no
block used, so that a test can refuse them: a table must not outlive its document.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 300
ENDS_WITHIN_S = 60
# What git tracks, as .ci/run and the tests of a checkout both have it.
KEPT = ("configs", "data", "examples", "singa_dask", "LICENSE", "README.md", "pyproject.toml", "setup.cfg")
IGNORED = ("__pycache__", "runs", *(f"data/{name}" for name in ("cifar10", "fashion", "imagenet", "mnist", "rnnlm")))
FILE_NAME = re.compile(r"# *([\w./-]+\.\w+)$")


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    Attributes
    ----------
    line : int
        Where its text starts in the document, from 1.
    section : str
        The nearest heading above it.
    language : str
        What follows the fence: ``sh``, ``yaml``, ``python``, ... or nothing.
    """

    document: Path
    line: int
    section: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"

    @property
    def file_name(self) -> str:
        """The name in a comment on the first line, or of a job by its key ``name``; else none."""
        found = FILE_NAME.match(self.text.partition("\n")[0])
        if found:
            return found[1]
        name = re.search(r"^name: *(\S+)", self.text, re.MULTILINE)
        return f"{name[1]}.yaml" if name and self.language == "yaml" else ""


def read_blocks(document: Path, language: str = "") -> list[Block]:
    """Return the fenced blocks of a markdown file, all or those of one language."""
    blocks: list[Block] = []
    section, fence, start = "", None, 0
    lines = document.read_text().splitlines()
    for i, line in enumerate(lines):
        if fence is None and line.startswith("```"):
            fence, start = line[3:].strip(), i + 1
        elif fence is not None and line.startswith("```"):
            blocks.append(Block(document, start + 1, section, fence, "\n".join(lines[start:i]) + "\n"))
            fence = None
        elif fence is None and line.startswith("#"):
            section = line.lstrip("#").strip()
    assert fence is None, f"{document.name}:{start}: the fence is not closed"
    return [block for block in blocks if block.language == language or not language]


@dataclass
class Session:
    """A directory in which the blocks of a document run, each after those above it.

    Files, exported variables, the working directory and processes in the background last from block to block.

    Parameters
    ----------
    directory : Path
        A copy of the repository, and where the first block starts.
    substitutions : mapping, optional
        Text of the document -> what runs in its place, in all of its blocks.
    not_run : mapping, optional
        Lines that are left out -> the reason.
    environment : mapping, optional
        Variables beside those of this process.
    """

    directory: Path
    substitutions: Mapping[str, str] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    groups: list[int] = field(default_factory=list)

    def text(self, block: Block) -> str:
        """Return what runs for a block."""
        lines = block.text.splitlines(keepends=True)
        for line in self.not_run:
            if f"{line}\n" in lines:
                self.used.add(line)
        text = "".join(line for line in lines if line.rstrip("\n") not in self.not_run)
        for old, new in self.substitutions.items():
            if old in text:
                self.used.add(old)
                text = text.replace(old, new)
        return text

    def run(self, block: Block, timeout_s: float = TIMEOUT_S) -> str:
        """Run a block of sh, and return what it printed; save any other under its `Block.file_name`.

        Raises
        ------
        AssertionError
            A command failed, or took too long.
        """
        if block.language == "sh":
            return self.shell(self.text(block), str(block), timeout_s)
        assert block.file_name, f"{block}: the first line of a {block.language} block names its file: # job.yaml"
        (self.directory / block.file_name).write_text(self.text(block))
        return ""

    def shell(self, text: str, name: str = "", timeout_s: float = TIMEOUT_S) -> str:
        """Run text as a block of sh, and return what it printed."""
        state = self.directory / ".session"
        state.mkdir(exist_ok=True)
        number = len(self.groups)
        script, output = state / f"{number}.sh", state / f"{number}.out"
        exports, cwd = shlex.quote(str(state / "exports")), shlex.quote(str(state / "cwd"))
        before = f'. {exports}; cd "$(cat {cwd})"\n' if (state / "cwd").exists() else ""
        script.write_text(f"{before}{text}\nexport -p >{exports}; pwd >{cwd}\n")
        command = ["bash", "-e", "-o", "pipefail", str(script)]
        with output.open("wb") as out:
            process = subprocess.Popen(command, cwd=self.directory, env=self._environ(), stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=out, start_new_session=True)  # fmt: skip
        self.groups.append(process.pid)
        try:
            code: int | str = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = f"not within {timeout_s} s"
        said = output.read_text(errors="replace")
        assert code == 0, f"{name}: exit code {code}\n{text}\n{said[-6000:]}"
        return said

    def unused(self) -> set[str]:
        """Return entries of the tables that no block has used."""
        return {*self.substitutions, *self.not_run} - self.used

    def close(self) -> None:
        """End what blocks left in the background."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for group in self.groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, number)
            psutil.wait_procs(self._left(), ENDS_WITHIN_S)
        assert not self._left(), "processes of the document go on"

    def _left(self) -> list[psutil.Process]:
        left = []
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(ProcessLookupError):
                if process.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) in self.groups:
                    left.append(process)
        return left

    def _environ(self) -> dict[str, str]:
        """Return the environment of a reader who has activated that of this process."""
        mine = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DASK_SCHEDULER_ADDRESS")
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), mine.get("PATH", os.defpath)])
        return {**mine, "PATH": path, "SINGA_DASK_CACHE": str(self.directory / ".cache"), **self.environment}


def copy_repository(directory: Path) -> Path:
    """Copy what a reader gets with the repository, without data sets and runs of their own."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        beneath = Path(folder).relative_to(ROOT)
        return [name for name in names if name in IGNORED or (beneath / name).as_posix() in IGNORED]

    directory.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, directory / name)
    return directory


@contextmanager
def session(
    directory: Path,
    substitutions: Mapping[str, str] | None = None,
    not_run: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Session]:
    """Give a session in a new copy of the repository; end its processes afterwards."""
    made = Session(copy_repository(directory), substitutions or {}, not_run or {}, environment or {})
    try:
        yield made
    finally:
        made.close()
