"""The examples do what they say: every script runs as a reader starts it, and what it trains learns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.snippets import ROOT, Session, session

EXAMPLES = ROOT / "examples"
PARTS = sorted((EXAMPLES / "parts").glob("*.yaml"))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Session]:
    """Give a copy of the repository, whose scripts make their temporary directories in ``tmp``."""
    (tmp_path / "tmp").mkdir()
    with session(tmp_path / "copy", environment={"TMPDIR": str(tmp_path / "tmp")}) as made:
        yield made


def shown(run: Path, phase: str, name: str) -> list[float]:
    """Return a metric of a run, in the order of its steps."""
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [event[name] for event in events if event.get("phase") == phase]


def test_all_scripts_are_here() -> None:
    tested = {f"{name}.sh" for name in re.findall(r"bash examples/(\w+)\.sh", Path(__file__).read_text())}
    assert tested == {path.name for path in EXAMPLES.glob("*.sh")}


@pytest.mark.long
def test_digits(reader: Session, tmp_path: Path) -> None:
    said = reader.shell("bash examples/digits.sh --set train_steps=500")
    (run,) = (tmp_path / "tmp").glob("*/digits")
    assert set(said.splitlines()) >= {path.name for path in run.iterdir()}
    *rows, last = said[said.index("step   loss") :].splitlines()
    assert [row.split()[0] for row in rows] == ["step", "0", "250", "500"]
    assert float(rows[1].split()[2]) < 0.3 < 0.9 < float(rows[-1].split()[2])
    assert last.startswith("done: 500 steps in ")


@pytest.mark.soak
@pytest.mark.cluster
def test_frameworks(reader: Session) -> None:
    said = reader.shell("bash examples/frameworks.sh 200")
    runs = re.findall(r"^== (\w+), (\d+) steps\ndone: (\d+) steps in .*'accuracy': ([\d.]+)", said, re.MULTILINE)
    assert [(name, int(wanted)) for name, wanted, *_ in runs] == [
        ("sandblaster", 200),
        ("allreduce", 200),
        ("downpour", 100),
        ("hogwild", 100),
        ("hybrid", 100),
    ]
    for name, wanted, steps, accuracy in runs:
        assert int(steps) == int(wanted), name
        assert float(accuracy) > 0.85, name


@pytest.mark.soak
def test_rbm(reader: Session, tmp_path: Path) -> None:
    said = reader.shell("bash examples/rbm.sh")
    (runs,) = (path.parent for path in (tmp_path / "tmp").glob("*/rbm1"))
    assert {path.name for path in runs.iterdir()} == {"rbm1", "rbm2", "rbm3", "rbm4", "autoencoder"}
    for name in ("rbm1", "rbm2", "rbm3", "rbm4"):
        errors = shown(runs / name, "train", "squared_error")
        assert errors[-1] < errors[0], name
    losses = shown(runs / "autoencoder", "test", "loss")
    assert losses[-1] < losses[0]
    assert f'"loss": {losses[-1]}' in said


@pytest.mark.soak
def test_rnnlm(reader: Session) -> None:
    steps = "--set train_steps=2000 --set disp_freq=500 --set test_freq=2000 --set test_steps=400"
    reader.shell(f"bash examples/rnnlm.sh {steps} --run-dir runs/rnnlm")
    perplexities = shown(reader.directory / "runs/rnnlm", "test", "ppl")
    assert 300 < perplexities[0]
    assert perplexities[-1] < 0.8 * perplexities[0]


@pytest.mark.soak
def test_sequences(reader: Session) -> None:
    reader.shell("python examples/sequences.py data/sequences")
    for name, steps in (("reviews", 300), ("reverse", 1000)):
        reader.shell(f"singa-dask run configs/sequences/{name}.yaml --set train_steps={steps} --run-dir runs/{name}")
        accuracies = shown(reader.directory / "runs" / name, "test", "accuracy")
        assert accuracies[0] < 0.6 and accuracies[-1] > 0.99, name


@pytest.mark.soak
@pytest.mark.parametrize(
    ("script", "job", "metric", "start", "end"),
    [("shapes", "shapes/unet", "accuracy", 0.6, 0.95), ("histories", "towers/items", "roc_auc", 0.6, 0.7)],
)
def test_nets_of_several_inputs(reader: Session, script: str, job: str, metric: str, start: float, end: float) -> None:
    reader.shell(f"python examples/{script}.py data/{script}")
    more = "--set train_steps=150 --set test_freq=150" if script == "shapes" else ""
    reader.shell(f"singa-dask run configs/{job}.yaml {more} --run-dir runs/{script}")
    values = shown(reader.directory / "runs" / script, "test", metric)
    assert values[0] < start and values[-1] > end


@pytest.mark.soak
def test_mobilenet(reader: Session) -> None:
    reader.shell("singa-dask run configs/digits/mobilenet.yaml --set train_steps=160 --run-dir runs/mobilenet")
    accuracies = shown(reader.directory / "runs/mobilenet", "test", "accuracy")
    assert accuracies[0] < 0.3 and accuracies[-1] > 0.85


@pytest.mark.soak
@pytest.mark.parametrize("job", PARTS, ids=lambda path: path.stem)
def test_a_part_learns(reader: Session, job: Path) -> None:
    reader.shell(f"singa-dask run {job.relative_to(ROOT)} --run-dir runs/part")
    losses = shown(reader.directory / "runs/part", "train", "loss")
    assert losses[-1] < 0.6 * losses[0]
    reader.shell("python examples/read_run.py runs/part")
