"""Parts of the user's own, on processes that have none of their files: examples, mistakes, and edited modules."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from singa_dask.cli import job as job_file
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError, UnitError
from singa_dask.runtime import local_cluster
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.cli.conftest import TINY
from tests.converting import convert
from tests.runtime.harness import Outcome
from tests.runtime.processes import ROOT, Driven, check_gone, cluster, residue
from tests.selection import circles

EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "parts").glob("*.yaml"))
TWO = ROOT / "configs" / "cluster" / "allreduce.yaml"
# in float64 a sum of two workers differs from that of one by too little to change a sign
EXACT = ("precision=float64", "ops=numpy", "train_steps=8", "disp_freq=1", "test_freq=0")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start a cluster of two processes in an empty directory."""
    with cluster(tmp_path_factory.mktemp("cluster"), "--no-nanny", cwd=tmp_path_factory.mktemp("empty")) as (_, client):
        yield client


def read(path: str | Path, *sets: str, topology: Path | None = None) -> JobConf:
    return job_file.read(str(path), sets, None if topology is None else str(topology)).job


def is_known(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def check_equal(driven: Driven, outcome: Outcome) -> None:
    assert driven.result.state == "done", driven.result
    there, here = load_values(driven.url), outcome.params()
    assert list(there) == list(here)
    for name, values in here.items():
        np.testing.assert_allclose(there[name].values, values, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.parametrize("name", circles(EXAMPLES, plain=2))
def test_an_example_is_the_same_on_processes_that_do_not_have_it(
    elsewhere: Client, tmp_path: Path, run_job: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(ROOT)
    assert not any(elsewhere.run(is_known, name).values())
    path, before = f"examples/parts/{name}.yaml", residue(elsewhere)
    driven = Driven(read(path, *EXACT, topology=TWO), elsewhere, tmp_path)
    check_equal(driven, run_job(read(path, *EXACT)))
    check_gone(elsewhere, before)


@pytest.mark.cluster
@pytest.mark.long
def test_so_is_the_language_model(
    elsewhere: Client, tmp_path: Path, run_job: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\nand a dog sat on the cat\nthe dog ran\n" * 20)
    words = str(tmp_path / "words.arrow")
    reading = {"vocabulary": str(tmp_path / "words.txt"), "class_size": 4}
    convert("words", [str(tmp_path / "text.txt")], words, reading=reading)
    monkeypatch.chdir(ROOT)
    sets = [*EXACT, "train_steps=40"]
    for layer in (0, 1):
        sets += [f"neuralnet.layer[{layer}].store_conf.path={words}"]
        sets += [f"neuralnet.layer[{layer}].store_conf.batchsize=8"]
    sets += ["neuralnet.layer[embedding].user_conf.vocab_size=10", "neuralnet.layer[loss].user_conf.vocab_size=10"]
    sets += ["neuralnet.layer[loss].user_conf.n_classes=4"]
    path = "configs/rnnlm/rnnlm.yaml"
    alone = run_job(read(path, *sets))
    check_equal(Driven(read(path, *sets, topology=TWO), elsewhere, tmp_path), alone)
    losses = list(alone.losses().values())
    assert losses[-1] < 0.9 * losses[0]


# -- modules of a test -----------------------------------------------------------------------------------------------

PARTS = """\
import numpy as np
from singa_dask import BP, DataError, Initialiser, InputLayer, Layer, RecordIds, Schedule, Store, StoreInput, Updater
from singa_dask import generator, register

class Noise(InputLayer):
    "Makes its records itself."

    def setup(self):
        self.n = self.conf.user_conf["batch"] // self.context.n_workers
        self.add_output((self.n, 6), requires_grad=False)

    def compute_feature(self, phase):
        first = self.first_row(self.n)
        drawn = generator((self.context.seed, self.context.step)).standard_normal((64, 6))
        self.features[0].data[...] = drawn[first : first + self.n]
        self.features[0].records = RecordIds((self.features[0].data[:, 0] > 0).astype(np.int32))

class Scale(Layer):
    def setup(self):
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase):
        if self.context.step == self.conf.user_conf.get("fail", -1):
            return 1 / 0
        self.features[0].data[...] = 2.0 * self.sources[0].data

    def compute_gradient(self, phase):
        self.sources[0].grad[...] = 2.0 * self.features[0].grad

class BadUpdater(Updater):
    def rule(self, w, g, lr, t, state, tmp, tmp2):
        w -= [][t]

class BadSchedule(Schedule):
    def __call__(self, step):
        return self.base / (2 - step)

class BadInitialiser(Initialiser):
    def fill(self, random, shape):
        return self.conf.user_conf["std"]

class BadAlgorithm(BP):
    def train_one_batch(self, step):
        super().train_one_batch(self.conf.user_conf["none"])

class BadParser(StoreInput):
    def parse(self, arrays):
        return arrays["pixel"][:, :self.context.step].sum(axis=5), arrays["label"]

class BadStore(Store):
    def __new__(cls, *args, **options):
        return super().__new__(cls)

    def __init__(self, url, storage_options=None):
        super().__init__(url, storage_options)
        from singa_dask import open_store
        self.inner = open_store(url, "arrow")
        self.blocks, self.schema = self.inner.blocks, self.inner.schema

    def read_block(self, block_id):
        return {}["nothing"]

    def close(self):
        self.inner.close()
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a job with the layer Scale between the others, in the current directory, and the module of its parts."""
    there = tmp_path / "job"
    there.mkdir()
    (there / "own.py").write_text(PARTS)
    layer = "    - {name: own, type: own.Scale, srclayers: fc}\n"
    text = TINY.replace("    - name: loss\n", f"{layer}    - name: loss\n").replace("[fc, data]", "[own, data]")
    (there / "job.yaml").write_text("modules: [own.py]\n" + text.replace("test_freq: 3", "test_freq: 0"))
    monkeypatch.chdir(there)
    return there


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(PARTS.splitlines(), 1) if text in line)


MISTAKES = {
    "layer": (
        ["neuralnet.layer[own].user_conf={fail: 3}"],
        f"own.py:{line_of('1 / 0')}: ZeroDivisionError: division by zero (worker-0-0, step 3, layer own)",
    ),
    "updater": (
        ["updater.type=own.BadUpdater"],
        f"own.py:{line_of('[][t]')}: IndexError: list index out of range (server-0-0)",
    ),
    "schedule": (
        ["updater.learning_rate.type=own.BadSchedule"],
        f"own.py:{line_of('2 - step')}: ZeroDivisionError: float division by zero (server-0-0)",
    ),
    "initialiser": (
        ["neuralnet.layer[fc].param[w].init.type=own.BadInitialiser"],
        f"own.py:{line_of('std')}: KeyError: 'std' (worker-0-0, step 0)",
    ),
    "algorithm": (
        ["train_one_batch.alg=own.BadAlgorithm"],
        f"own.py:{line_of('none')}: KeyError: 'none' (worker-0-0, step 0)",
    ),
    "parser": (
        ["neuralnet.layer[data].type=own.BadParser"],
        f"own.py:{line_of('axis=5')}: AxisError: axis 5 is out of bounds for array of dimension 3 "
        "(worker-0-0, step 0, layer data)",
    ),
    "store": (
        ["neuralnet.layer[data].store_conf.backend=own.BadStore"],
        f"own.py:{line_of('nothing')}: {ROOT}/data/digits/test.arrow, block 0: KeyError: 'nothing' "
        "(worker-0-0, step 0, layer data)",
    ),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_in_a_part_is_told_by_its_line(parts: Path, run_job: Callable[..., Outcome], kind: str) -> None:
    sets, told = MISTAKES[kind]
    outcome = run_job(read("job.yaml", *sets))
    (report,) = [each for each in outcome.reports.values() if each["state"] == "failed"]
    assert report["reason"].splitlines()[0] == told
    assert (report["exit_code"], report["expected"]) == (1, False)
    first, second = report["error"].splitlines()[:2]
    assert first == "Traceback (most recent call last):"
    assert second.startswith('  File "own.py", line ')


@pytest.mark.cluster
def test_a_mistake_far_away_is_told_with_its_source(client: Client, tmp_path: Path, parts: Path) -> None:
    sets, told = MISTAKES["layer"]
    result = Driven(read("job.yaml", *sets, topology=TWO), client, tmp_path).result
    first, second = told, told.replace("worker-0-0", "worker-0-1")
    # the other one may have failed before it heard of that
    both = [each.replace(", step", " and 1 other, step") for each in (first, second)]
    assert result.reason in (first, second, *both)
    assert (result.state, result.exit_code) == ("failed", 1)
    assert "    return 1 / 0\n" in result.error


@pytest.mark.cluster
@pytest.mark.long
def test_an_edited_module_takes_the_place_of_the_earlier_one(
    client: Client, tmp_path: Path, parts: Path, run_job: Callable[..., Outcome]
) -> None:
    found = []
    for factor in ("2.0", "0.5", "2.0"):
        (parts / "own.py").write_text(PARTS.replace("2.0", factor))
        driven = Driven(read("job.yaml", *EXACT, topology=TWO), client, tmp_path)
        check_equal(driven, run_job(read("job.yaml", *EXACT)))
        found.append(load_values(driven.url)["w"].values)
    assert np.array_equal(found[0], found[2])
    assert not np.allclose(found[0], found[1])


@pytest.mark.cluster
def test_records_without_a_store(client: Client, tmp_path: Path, parts: Path, run_job: Callable[..., Outcome]) -> None:
    text = (parts / "job.yaml").read_text().replace("type: RecordInput", "type: own.Noise")
    lines = [line if "store_conf" not in line else "      user_conf: {batch: 64}" for line in text.splitlines()]
    (parts / "job.yaml").write_text("\n".join(lines))
    driven = Driven(read("job.yaml", *EXACT, topology=TWO), client, tmp_path)
    check_equal(driven, run_job(read("job.yaml", *EXACT)))


@pytest.mark.cluster
def test_what_a_process_cannot_load_is_told_and_leaves_nothing(
    client: Client, tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    (parts / "own.py").write_text(f"import only_here\n{PARTS}")
    with pytest.raises(UnitError) as caught:
        Driven(read("job.yaml", topology=TWO), client, tmp_path)
    told = "own.py:1: ModuleNotFoundError: No module named 'only_here'. A module that yours imports must be installed"
    assert str(caught.value).startswith("process ")
    assert told in str(caught.value)


@pytest.mark.cluster
def test_two_jobs_cannot_have_two_texts_of_a_module_in_one_process(tmp_path: Path, parts: Path) -> None:
    refused: list[str] = []

    def start_another(driven: Driven, event: dict[str, Any]) -> None:
        (parts / "own.py").write_text(f"# edited\n{PARTS}")
        with pytest.raises(ConfigError) as caught:
            read("job.yaml")
        refused.append(str(caught.value))
        driven.driver.stop()

    with local_cluster(1, 4, processes=False) as client:
        job = read("job.yaml", "train_steps=1000000", "disp_freq=1")
        first = Driven(job, client, tmp_path, start_another)
        assert first.result.state == "stopped"
        assert f"own.py: job {first.job_id} " in refused[0]
        assert refused[0].endswith(f"Rename the file, or wait for the end of job {first.job_id}.")
        assert Driven(read("job.yaml"), client, tmp_path).result.state == "done"
