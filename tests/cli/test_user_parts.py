"""Parts of the user's own on the command line: what is printed, exit codes, the schema, and the examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Call

EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))

MODULE = """\
from singa_dask import Layer, register

@register("Same")
class Mine(Layer):
    def setup(self):
        self.limit = self.conf.user_conf["limit"]
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase):
        self.features[0].data[...] = self.sources[0].data / (self.limit - self.context.step)
        return 1 // (self.limit - self.context.step)

    def compute_gradient(self, phase):
        self.sources[0].grad[...] = self.features[0].grad
"""


SCHEDULE = """\
from pydantic import Field
from singa_dask import Conf, Schedule, register


class BumpConf(Conf):
    width: int = Field(ge=1)
    \"\"\"Steps until the rate is back at base_lr.\"\"\"
    height: float = 2.0


@register
class Bump(Schedule):
    options_class = BumpConf

    def __call__(self, step):
        return self.base * (self.options.height if step < self.options.width else 1)
"""


@pytest.fixture
def own(job: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the job file with a layer of a module that lies beside it."""
    (job.parent / "own.py").write_text(MODULE)
    layer = "    - {name: same, type: Same, srclayers: fc, user_conf: {limit: 100}}\n"
    text = (
        job.read_text()
        .replace("    - name: loss\n", f"{layer}    - name: loss\n")
        .replace("[fc, data]", "[same, data]")
    )
    job.write_text(f"modules: own.py\n{text}")
    monkeypatch.chdir(job.parent)
    return job


def test_a_job_with_a_module_runs(call: Call, own: Path) -> None:
    result = call("run", own, "--run-dir", "run", "--json", "--quiet")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["state"] == "done"
    assert "\nmodules: [own.py]\n" in Path("run/resolved.yaml").read_text()


def test_a_mistake_in_training_is_told_first_then_the_lines_of_the_user(call: Call, own: Path) -> None:
    result = call("run", own, "--quiet", "--run-dir", "run", "--set", "neuralnet.layer[same].user_conf.limit=3")
    assert result.exit_code == 1
    first, *rest = result.stderr.splitlines()
    assert first == "own.py:11: ZeroDivisionError: integer division or modulo by zero (worker-0-0, step 3, layer same)"
    assert rest[:3] == [
        "Traceback (most recent call last):",
        '  File "own.py", line 11, in compute_feature',
        "    return 1 // (self.limit - self.context.step)",
    ]
    assert rest[-1] == "ZeroDivisionError: integer division or modulo by zero"
    assert json.loads(Path("run/summary.json").read_text())["reason"] == first


@pytest.mark.parametrize("verb", ["validate", "run"])
def test_so_is_a_mistake_in_setup(call: Call, own: Path, verb: str) -> None:
    own.write_text(own.read_text().replace("limit", "limits"))
    result = call(verb, own)
    assert result.exit_code == 1
    assert result.stdout == ""
    first, *rest = result.stderr.splitlines()
    assert first == "own.py:6: KeyError: 'limit'"
    assert rest[:2] == ["Traceback (most recent call last):", '  File "own.py", line 6, in setup']
    assert "singa_dask/" not in result.stderr
    assert not Path("runs").exists()


def test_mistakes_in_the_job_have_their_places(call: Call, own: Path) -> None:
    own.write_text(own.read_text().replace("type: Same", "type: own.Mien"))
    result = call("validate", own)
    assert result.exit_code == 2
    message = "neuralnet.layer[same].type: no class 'Mien' in own. Did you mean 'Mine'? Known: Mine."
    assert result.stderr.splitlines() == [f"{own}:25:26: {message}"]


def test_the_schema_knows_what_a_module_registers(call: Call, own: Path) -> None:
    made = json.loads(call("schema", "--module", "own.py").stdout)
    assert "Same" in made["definitions"]["LayerConf"]["properties"]["type"]["anyOf"][0]["enum"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_right(call: Call, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = call("validate", path)
    assert result.exit_code == 0, result.output
    schema = path.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / schema).resolve() == ROOT / "configs" / "job.schema.json"


@pytest.fixture
def bump(job: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the job file with a learning rate of a module that lies beside it."""
    (job.parent / "bump.py").write_text(SCHEDULE)
    rate = "{type: bump.Bump, base_lr: 0.05, bump_conf: {width: 2}}"
    job.write_text(f"modules: bump.py\n{job.read_text().replace('{type: Fixed, base_lr: 0.05}', rate)}")
    monkeypatch.chdir(job.parent)
    return job


def test_a_block_of_the_users_own(call: Call, bump: Path) -> None:
    result = call("run", bump, "--run-dir", "run", "--json", "--quiet", "--set", "disp_freq=1")
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [event["lr"] for event in events if event.get("phase") == "train"][:4] == [0.1, 0.1, 0.05, 0.05]
    assert "bump_conf:\n      width: 2\n      height: 2.0\n" in Path("run/resolved.yaml").read_text()


def test_mistakes_in_a_block_of_the_users_own_have_their_places(call: Call, bump: Path) -> None:
    bump.write_text(bump.read_text().replace("width: 2", "width: 0, hight: 1"))
    result = call("validate", bump)
    assert result.exit_code == 2
    assert [line.partition("learning_rate.")[2] for line in result.stderr.splitlines()] == [
        "bump_conf.width: expected at least 1, got 0.",
        "bump_conf.hight: unknown key. Did you mean 'height'? Known: height, width.",
    ]
    result = call(
        "validate", bump, "--set", "updater.learning_rate.bump_conf={width: 1}", "--set", "updater.lion_conf={}"
    )
    assert result.exit_code == 0


def test_the_schema_knows_blocks_of_a_module(call: Call, bump: Path) -> None:
    definitions = json.loads(call("schema", "--module", "bump.py").stdout)["definitions"]
    assert definitions["LRGenConf"]["properties"]["bump_conf"]["anyOf"][0] == {"$ref": "#/definitions/BumpConf"}
    assert definitions["BumpConf"]["properties"]["width"]["description"] == "Steps until the rate is back at base_lr."
