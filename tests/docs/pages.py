"""What differs from each page of documentation where its code blocks run, and what a page takes for granted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from singa_dask.runtime.checkpoints.lookup import load_values
from tests.docs import material
from tests.docs.parts import check_parts
from tests.ports import free_port
from tests.snippets import ROOT, Block, Session, read_blocks

__all__ = ["DOCS", "ON_HDFS", "OTHERS", "PAGES", "README", "STEPS", "Page", "shorten"]

README = ROOT / "README.md"
DOCS = ROOT / "docs"
# Pages that need an HDFS: tests/hdfs/test_pages.py.
ON_HDFS = ("tables.md", "formats.md", "convert.md", "records.md", "hdfs.md", "kerberos.md")
# Pages with a test of their own.
OTHERS = ("first-hour.md", "from-pytorch.md")
STEPS = 1_500
# Pages show commands and files, not how well a net learns: its jobs are this much shorter.
DIGITS = {"train_steps: 2500": "train_steps: 500", "checkpoint_freq: 1250": "checkpoint_freq: 250"}


def shorten(session: Session) -> None:
    """Let the perceptron on digits train for a fifth of its steps."""
    path = session.directory / "configs/digits/mlp.yaml"
    text = path.read_text()
    for old, new in DIGITS.items():
        assert old in text, f"{old!r} is not there any more"
        text = text.replace(old, new)
    path.write_text(text)


def nothing(session: Session) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Page:
    """A page whose blocks run in one session.

    Attributes
    ----------
    substitutions : mapping
        As of `Session`; those of `ports` come in addition.
    not_run : mapping
        As of `Session`.
    ports : bool
        The page starts a scheduler at port 8786, for which another one is taken.
    prepare, check : function of a session
        Write what the page takes for granted; look at what its blocks have left.
    """

    path: Path
    substitutions: Mapping[str, str] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)
    ports: bool = False
    prepare: Callable[[Session], object] = nothing
    check: Callable[[Session], object] = nothing

    @property
    def blocks(self) -> list[Block]:
        """The code blocks of the page."""
        return read_blocks(self.path)

    def table(self) -> dict[str, str]:
        """Return what runs in place of text of the page."""
        port = free_port()
        # another scheduler may have the port
        addresses = {
            "--port 8786": f"--host 127.0.0.1 --port {port}",
            "tcp://localhost:8786": f"tcp://127.0.0.1:{port}",
        }
        return {**(addresses if self.ports else {}), **self.substitutions}


def summaries(session: Session) -> list[dict[str, object]]:
    """Return the summaries of all runs of the perceptron on digits in directories of their own."""
    return [json.loads(path.read_text()) for path in sorted((session.directory / "runs").glob("digits-*/summary.json"))]


def learned(n: int) -> Callable[[Session], None]:
    """Return a check that so many jobs on digits ended well."""

    def check(session: Session) -> None:
        found = summaries(session)
        assert [summary["state"] for summary in found] == ["done"] * n
        assert all(summary["test"]["accuracy"] > 0.9 for summary in found)  # type: ignore[index]

    return check


def check_readme(session: Session) -> None:
    """Check that the job on digits ended well, and that all ways to a net for a table learn to tell penguins apart."""
    learned(1)(session)
    assert json.loads((session.directory / "runs/penguins/summary.json").read_text())["test"]["accuracy"] > 0.9
    assert float(session.shell("python penguins.py")) > 0.9
    assert session.shell("python on_dask.py").count("Adelie") > 100


def write_jobs(session: Session) -> None:
    """Write job files of the reader's own."""
    mlp = (session.directory / "configs/digits/mlp.yaml").read_text()
    steps = mlp.replace("train_steps: 500", f"train_steps: {STEPS}").replace("disp_freq: 125", "disp_freq: 10")
    (session.directory / "JOB.yaml").write_text(steps)
    (session.directory / "OTHER.yaml").write_text(mlp.replace("train_steps: 500", "train_steps: 20"))


def check_resumed(session: Session) -> None:
    """Check that the resumed run reached the last step, and that another started from it."""
    mine = json.loads((session.directory / "runs/mine/summary.json").read_text())
    assert (mine["state"], mine["steps"]) == ("done", STEPS)
    assert [summary["state"] for summary in summaries(session)] == ["done"]


def write_photos(session: Session) -> None:
    """Write pictures, and train a net of the reader's own."""
    here = session.directory
    material.write_photos(here / "photos")
    shutil.copy(next((here / "photos").rglob("*.png")), here / "one.png")
    write_jobs(session)
    session.shell("singa-dask run OTHER.yaml --run-dir runs/of-reader")


def check_equal_bits(session: Session) -> None:
    """Check that both runs have ended with the same params, and have learned."""
    runs = sorted((session.directory / "runs").glob("python-digits-*"))
    assert [json.loads((run / "summary.json").read_text())["test"]["accuracy"] > 0.9 for run in runs] == [True, True]
    found = [{name: each.values.tobytes() for name, each in load_values(str(run)).items()} for run in runs]
    assert found[0] == found[1]


def check_features(session: Session) -> None:
    """Check that there is a store of features for each layer."""
    assert len(list(session.directory.glob("features-*.arrow"))) == 2


def write_cifar(session: Session) -> None:
    """Write a small CIFAR-10, and convert it."""
    for i in range(1, 6):
        material.write_cifar(session.directory / f"data_batch_{i}.bin", 20)
    material.write_cifar(session.directory / "test_batch.bin", 20)
    session.shell(
        "singa-dask convert cifar 'data_batch_[1-5].bin' data/cifar10/train.arrow --mean data/cifar10/image_mean.bin\n"
        "singa-dask convert cifar test_batch.bin data/cifar10/test.arrow\n"
    )


def check_picture(session: Session) -> None:
    """Check that the net was drawn."""
    assert (session.directory / "net.svg").read_text().lstrip().startswith("<?xml")


def simulated_gpu() -> dict[str, str]:
    """Return what runs on simulated GPUs, which are slow, with processes of their own."""
    on_gpu = f"PYTHONPATH={ROOT / 'tests/simulated'}"
    few = "--set train_steps=3 --set test_freq=2 --set test_steps=1"
    small = " ".join(f"--set 'neuralnet.layer[{i}].store_conf.batchsize=4'" for i in (0, 1))
    convnet = "singa-dask run configs/cifar10/convnet.yaml"
    return {
        f"{convnet} --set 'gpu=[0]'": f"{on_gpu} {convnet} --set 'gpu=[0]' {few} {small}",
        f"{convnet} --cluster": f"{on_gpu} {convnet} {few} {small} --cluster",
    }


INSTALL = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/singa-dask run configs/digits/mlp.yaml"
TEST = "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest -n 2 --dist loadfile"
STOPPED = "singa-dask run JOB.yaml --run-dir runs/mine   "

COMPARED = (
    "singa-dask compare configs/digits/mlp.yaml --clusters configs/cluster/*.yaml --seeds 3 --until accuracy=0.95"
)

LEFT = [
    f"singa-dask run configs/digits/mlp.yaml --cluster allreduce {more}" for more in ("--detach", "--queue --detach")
]

# Without a stated reason a line runs as it is.
PAGES = [
    Page(README, not_run={INSTALL: "tests/test_wheel.py runs it", TEST: "it is what runs this test"}, ports=True,
         check=check_readme),
    Page(
        DOCS / "index.md",
        not_run={INSTALL: "README has it, too", ". .venv/bin/activate": "the session has done it"},
    ),
    Page(DOCS / "questions.md"),
    Page(DOCS / "troubleshooting.md"),
    Page(DOCS / "sizing.md"),
    Page(DOCS / "glossary.md"),
    Page(DOCS / "init.md"),
    Page(DOCS / "job-files.md"),
    Page(DOCS / "tests-and-metrics.md"),
    Page(DOCS / "commands.md", {"--init-from RUN ": "--init-from runs/of-reader "}, prepare=write_photos,
         check=check_features),
    Page(DOCS / "python.md", check=check_equal_bits),
    Page(DOCS / "estimators.md"),
    Page(DOCS / "dask-data.md"),
    Page(DOCS / "models.md"),
    Page(DOCS / "cluster.md", {"train_steps=1250": "train_steps=400"}, ports=True, check=learned(1),
         not_run=dict.fromkeys(LEFT, "it goes on after the page: tests/runtime/job/test_detached.py")),
    Page(DOCS / "dashboard.md"),
    Page(DOCS / "recovery.md"),
    Page(DOCS / "network.md"),
    Page(DOCS / "exchange.md"),
    Page(DOCS / "deploy.md"),  # tests/examples/test_deploy.py runs its scripts
    Page(DOCS / "compare.md", {"--seeds 3 --until accuracy=0.95": "--until accuracy=0.6 --set test_freq=10"},
         not_run={f"{COMPARED} --set test_freq=50": "the same command as above"}),
    Page(DOCS / "plan.md"),
    Page(DOCS / "scale.md"),
    Page(DOCS / "scale-tables.md"),
    Page(DOCS / "runs.md"),
    Page(DOCS / "look-at-runs.md"),
    Page(DOCS / "profile.md"),
    Page(DOCS / "signals.md"),
    # a hand at the keyboard
    Page(DOCS / "checkpoints.md", {STOPPED: material.interrupted("runs/mine", STOPPED)}, prepare=write_jobs,
         check=check_resumed),
    Page(DOCS / "export.md"),
    Page(DOCS / "export-models.md"),
    Page(DOCS / "serve.md", {"8000": str(free_port())}),
    Page(DOCS / "serve-http.md"),
    Page(DOCS / "nets.md"),
    Page(DOCS / "speed.md"),
    # five minutes of training, for the sample below it
    Page(DOCS / "recurrent.md",
         {f"configs/char-rnn/{name}.yaml --run-dir": f"configs/char-rnn/{name}.yaml --set train_steps={n} --run-dir"
          for name, n in (("gru", 10), ("transformer", 5))}
         | {f"{name}.yaml --run-dir": f"{name}.yaml --set train_steps=20 --run-dir"
            for name in ("reviews", "reverse")}),
    Page(DOCS / "rbm.md", not_run={"bash examples/rbm.sh": "tests/examples/test_scripts.py runs it"}),
    Page(DOCS / "partition.md", {"pipeline.yaml ": "pipeline.yaml --set train_steps=200 "}, prepare=write_cifar,
         check=check_picture),
    Page(
        DOCS / "gpu.md",
        simulated_gpu(),
        not_run={
            "pip install 'singa-dask[cuda12]'                              # or [cuda13]; CUDA itself is not needed": (
                "a gigabyte, for a machine with a GPU"
            ),
            "dask cuda worker tcp://scheduler:8786 --nthreads 2            # pip install dask-cuda": (
                "it starts a worker a GPU"
            ),
        },
        prepare=write_cifar,
    ),
    Page(DOCS / "parts.md", check=check_parts),
    Page(DOCS / "parts-reference.md"),
    Page(DOCS / "keras.md"),
    Page(DOCS / "singa.md"),
]  # fmt: skip
