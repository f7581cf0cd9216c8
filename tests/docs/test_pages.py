"""Every code block of README.md and docs/, pasted in order; those that need an HDFS are in tests/hdfs/test_pages.py."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from distributed.cli import dask_worker

from tests.docs.pages import DOCS, INSTALL, ON_HDFS, OTHERS, PAGES, README, TEST, Page, shorten
from tests.snippets import ROOT, Block, Session, read_blocks, session

EXTRAS = {
    "".join(extra)
    for path in (README, *DOCS.glob("*.md"))
    for extra in re.findall(r"(?:singa-dask|'\.)\[(\w+)\]|or \[(\w+)\](?!\()", path.read_text())
}


def run(made: Session, block: Block) -> None:
    """Run a block; a job file is checked and run, too."""
    made.run(block)
    if block.file_name.endswith(".yaml"):
        made.shell(
            f"singa-dask validate --strict {block.file_name}\nsinga-dask run {block.file_name} --set train_steps=100"
        )


@pytest.mark.cluster
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long if page.path == README else pytest.mark.soak, id=page.path.stem)
        for page in PAGES
        if page.blocks
    ],
)
def test_the_blocks_of_a_page_run(page: Page, tmp_path: Path) -> None:
    """Paste them in order, in a reader's copy of the repository, and look at what they have left."""
    if any("net.svg" in block.text for block in page.blocks) and not shutil.which("dot"):
        pytest.skip("needs the program dot of Graphviz")
    with session(tmp_path / "copy", page.table(), page.not_run) as made:
        shorten(made)
        page.prepare(made)
        for block in page.blocks:
            run(made, block)
        assert made.unused() == set()
        page.check(made)


def test_every_page_has_its_test() -> None:
    known = [page.path.name for page in PAGES] + [*ON_HDFS, *OTHERS]
    assert sorted(known) == sorted(["README.md", *(path.name for path in DOCS.glob("*.md"))])


def test_every_block_that_is_saved_names_its_file() -> None:
    """Blocks of text, which show output, are never run."""
    saved = [
        block
        for path in (README, *DOCS.glob("*.md"))
        for block in read_blocks(path)
        if block.language not in ("sh", "text", "")
    ]
    assert saved
    assert [str(block) for block in saved if not block.file_name] == []


def test_what_another_page_or_test_runs_is_there() -> None:
    assert INSTALL in README.read_text()
    assert "bash examples/rbm.sh" in (ROOT / "tests/examples/test_scripts.py").read_text()


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_an_extra_that_a_page_names_is_there(extra: str) -> None:
    assert extra in (importlib.metadata.metadata("singa-dask").get_all("Provides-Extra") or [])


def test_the_test_command_is_what_ci_runs() -> None:
    pattern = re.search(r"grep -m 1 -E '([^']+)'", (ROOT / ".ci/run").read_text())
    assert pattern
    found = subprocess.run(["grep", "-m", "1", "-E", pattern[1], README], capture_output=True, text=True).stdout
    assert found.rstrip("\n") == TEST


def test_a_worker_for_each_gpu_is_started_with_options_of_a_worker() -> None:
    (line,) = [line for page in PAGES for line in page.not_run if line.startswith("dask cuda worker")]
    known = CliRunner().invoke(dask_worker.main, ["--help"]).stdout
    assert set(re.findall(r"--[\w-]+", line)) <= set(re.findall(r"--[\w-]+", known))
