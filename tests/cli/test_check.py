"""``check``: the exam of parts on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Call
from tests.snippets import read_blocks

DOUBLE = """\
from singa_dask import Layer


class Double(Layer):
    def setup(self):
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase):
        self.y.data[...] = 2 * self.sources[0].data

    def backward(self, phase):
        if self.sources[0].grad is not None:
            self.sources[0].grad[...] = self.y.grad
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a wrong layer, the parts of the examples, and a store of the docs."""
    monkeypatch.chdir(tmp_path)
    for path in (ROOT / "examples/parts").glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "mine.py").write_text(DOUBLE)
    store = next(block for block in read_blocks(ROOT / "docs/parts.md") if block.file_name == "readings.py")
    (tmp_path / "readings.py").write_text(store.text)
    (tmp_path / "readings.txt").write_text("0.5 1\n-1.5 0\n2 1")
    (tmp_path / "text").write_text("To be, or not to be, that is the question. " * 40)
    return tmp_path


def test_a_wrong_layer_ends_with_what_to_do(call: Call, folder: Path) -> None:
    result = call("check", "mine.Double", "--shape", "3x2x4x5")
    assert result.exit_code == 1
    assert result.stderr.startswith("Double: gradients: the gradient of source 0 is ")
    assert result.stderr.endswith(
        "All values are 0.5 times the expected ones. The expected value is the slope of forward(). "
        "Correct backward().\n"
    )


@pytest.mark.parametrize(
    "args",
    [
        ("swish.Swish",),
        ("swish.Swish", "--module", "swish.py", "--shape", "6x3", "--steps", "2"),
        ("lion.Lion", "--learning-rate", "0.01", "--conf", '{"user_conf": {"beta1": 0.8}}'),
        ("letters.Letters", "--data", "text", "--conf", '{"window": 8, "block_records": 100}'),
        ("readings.Readings", "--data", "readings.txt", "--conf", '{"block_bytes": 12}'),
        pytest.param(("SoftmaxLoss", "--classes", "3"), marks=pytest.mark.long),
        ("LayerNorm", "--conf", '{"layernorm_conf": {"epsilon": 0.1}}'),
    ],
)
def test_right_parts_pass(call: Call, folder: Path, args: tuple[str, ...]) -> None:
    result = call("check", *args)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{args[0]} passes.\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("job.yaml",), "To check a job file: singa-dask validate job.yaml."),
        (("mine.Nope",), "no class 'Nope' in mine."),
        (("letters.Letters",), "Pass --data URL."),
        (("swish.Swish", "--conf", "{"), "--conf: expected JSON, got '{'"),
        (("swish.Swish", "--conf", "[]"), "--conf: expected a JSON object, got '[]'."),
        (("swish.Swish", "--shape", "4,6"), "--shape: expected sizes like 4x6, got 4,6."),
    ],
)
def test_what_cannot_be_examined_is_refused(call: Call, folder: Path, args: tuple[str, ...], says: str) -> None:
    result = call("check", *args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
