"""``graph``: the picture of a net in its four formats, and what is said where Graphviz is not there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.conftest import ROOT, Call

CIFAR = ROOT / "configs" / "cifar10" / "convnet.yaml"
FOUR = ("--partitioned", "--set", "cluster.nworkers_per_group=4")


class NotFound(RuntimeError):
    pass


def fake(pipe: Any) -> SimpleNamespace:
    """Return what stands in for the package graphviz."""
    return SimpleNamespace(
        Source=lambda text: SimpleNamespace(pipe=lambda format: pipe(text, format)), ExecutableNotFound=NotFound
    )


def test_dot_on_stdout(call: Call, job: Path) -> None:
    result = call("graph", job)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("digraph net {\n")
    assert result.stdout.endswith("}\n")
    assert "tiny: train net of one worker" in result.stdout
    assert "20 x 10" in result.stdout
    assert result.stderr == ""


def test_without_records(call: Call) -> None:
    result = call("graph", CIFAR)
    assert result.exit_code == 0, result.output
    assert "100 x 32 x 15 x 15" in result.stdout


def test_the_whole_net_unless_it_is_to_be_partitioned(call: Call) -> None:
    features = ("--set", "neuralnet.partition_dim=1", *FOUR[1:])
    assert "cluster_" not in call("graph", CIFAR, *features).stdout
    text = call("graph", CIFAR, "--partitioned", *features).stdout
    assert all(f"worker {worker}" in text for worker in range(4))
    assert "w1: 8 x 75 of 32 x 75" in text


def test_a_group_that_shares_only_the_batch(call: Call) -> None:
    text = call("graph", CIFAR, *FOUR).stdout
    assert "on each of 4 workers" in text
    assert "25 x 32 x 15 x 15" in text


def test_other_phases(call: Call, job: Path) -> None:
    assert "tiny: test net" in call("graph", job, "--phase", "test").stdout
    result = call("graph", job, "--phase", "val")
    assert result.exit_code == 2
    assert "this job has no val net. Set validate_freq and validate_steps." in result.stderr


def test_a_file_of_text(call: Call, job: Path, tmp_path: Path) -> None:
    dot = tmp_path / "net.dot"
    assert call("graph", job, "-o", dot).exit_code == 0
    assert dot.read_text() == call("graph", job).stdout


def test_a_format_that_is_not_known(call: Call, job: Path, tmp_path: Path) -> None:
    result = call("graph", job, "-o", tmp_path / "net.gif")
    assert result.exit_code == 2
    assert ".dot, .svg, .png" in result.stderr
    assert not (tmp_path / "net.gif").exists()


def test_a_broken_job_is_told_with_its_places(call: Call, job: Path) -> None:
    result = call("graph", job, "--set", "neuralnet.layer[fc].innerproduct_conf.num_output=0")
    assert result.exit_code == 2
    assert "num_output" in result.stderr
    job.write_text(job.read_text().replace("[fc, data]", "[fc]"))
    result = call("graph", job)
    assert result.exit_code == 2
    assert f"{job}:" in result.stderr


def test_graphviz_draws(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", fake(lambda text, format: f"{format} of {text}".encode()))
    out = tmp_path / "net.svg"
    assert call("graph", job, "-o", out).exit_code == 0
    assert out.read_text().startswith("svg of digraph net {")


def test_without_the_package(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    result = call("graph", job, "-o", tmp_path / "net.svg")
    assert result.exit_code == 2
    assert "pip install 'singa-dask[graph]'" in result.stderr
    assert "-o FILE.dot needs neither" in result.stderr
    assert not (tmp_path / "net.svg").exists()


def test_without_the_program(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(text: str, format: str) -> bytes:
        raise NotFound

    monkeypatch.setitem(sys.modules, "graphviz", fake(pipe))
    result = call("graph", job, "-o", tmp_path / "net.png")
    assert result.exit_code == 2
    assert "apt install graphviz" in result.stderr


def test_a_program_that_fails(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(text: str, format: str) -> bytes:
        raise subprocess.CalledProcessError(1, ["dot"], stderr=b"no such format")

    monkeypatch.setitem(sys.modules, "graphviz", fake(pipe))
    result = call("graph", job, "-o", tmp_path / "net.png")
    assert result.exit_code == 1
    assert "Graphviz failed: no such format" in result.stderr


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs the program dot of Graphviz")
@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_graphviz_takes_the_text(call: Call, tmp_path: Path, suffix: str, start: bytes) -> None:
    pytest.importorskip("graphviz")
    out = tmp_path / f"net{suffix}"
    result = call("graph", CIFAR, *FOUR, "--set", "neuralnet.layer[ip1].partition_dim=1", "-o", out)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert out.read_bytes().startswith(start)
