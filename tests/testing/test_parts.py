"""The exams of updaters and stores find mistakes; the parts of the documentation and the examples pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf.updater import LRGenConf
from singa_dask.data.stores import Store
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError, PartError
from singa_dask.layers import Layer
from singa_dask.testing import check_layer, check_store, check_updater
from singa_dask.training import Schedule, Updater

ROOT = Path(__file__).parents[2]
Array = np.ndarray[Any, Any]


class Plain(Updater):
    """A right rule, which the others spoil."""

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        w -= lr * self.direction(w, g)

    def direction(self, w: Array, g: Array) -> Array:
        return g


class OfItsNorm(Plain):
    def direction(self, w: Array, g: Array) -> Array:
        return g / np.sqrt((g**2).sum() + 1e-9)


class Uphill(Plain):
    def direction(self, w: Array, g: Array) -> Array:
        return -g


class DividesByZero(Plain):
    def direction(self, w: Array, g: Array) -> Array:
        return g / np.abs(g)


class Remembers(Plain):
    before: Any = None

    def direction(self, w: Array, g: Array) -> Array:
        self.before = g.copy() if self.before is None or len(self.before) != len(g) else 0.9 * self.before + g
        return self.before


class ChangesGradient(Plain):
    def direction(self, w: Array, g: Array) -> Array:
        g *= 2
        return g


class IgnoresRate(Updater):
    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        w -= self.conf.learning_rate.base_lr * g


class ReboundState(Updater):
    state_names = ("mean",)

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Any, tmp: Array, tmp2: Array) -> None:
        state["mean"] = 0.9 * state["mean"] + g
        w -= lr * state["mean"]


class UnnamedState(ReboundState):
    state_names = ()


class Silent(Updater):
    """A rule without a rule."""


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (OfItsNorm, "slices: a value of a param in slices is"),
        (Uphill, "the updater does not train a linear model: the loss was"),
        (DividesByZero, "Does it divide by 0? See delta"),
        (Remembers, "state: a value after a resume is"),
        (ChangesGradient, "A gradient is only read: compute in tmp"),
        (IgnoresRate, "Multiply the step by lr"),
        (ReboundState, "Write into its memory: state['mean'][...] = ..."),
        (UnnamedState, "there is no state 'mean'. Name it in state_names"),
        (Silent, "it has no rule()"),
    ],
)
def test_a_wrong_rule_is_found(cls: type[Updater], says: str) -> None:
    with pytest.raises(PartError, match=re.escape(says)):
        check_updater(cls)


@pytest.mark.parametrize("conf", [{}, {"weight_decay": 0.1}])
def test_a_right_rule_passes(conf: dict[str, float]) -> None:
    check_updater(Plain, conf)


class Bytes(Store):
    """A right store, records of four bytes, which the others spoil."""

    n_block = 8

    def __init__(self, url: str, storage_options: Any = None, step: int = 4) -> None:
        super().__init__(url, storage_options, **self.kept(step))
        try:
            values = np.frombuffer(Path(url).read_bytes(), np.uint8)
        except OSError as error:
            raise DataError(self.missing(error)) from error
        self.values = values[: len(values) // step * step].reshape(-1, step)
        self.schema = {"pixel": Field(self.dtype(), (step,))}
        n = len(self.values)
        starts = range(0, n, self.n_block)
        self.blocks = tuple(
            Block(self.number(i), min(self.n_block, n - first), url, first * step, min(self.n_block, n - first) * step)
            for i, first in enumerate(starts)
        )

    def kept(self, step: int) -> dict[str, Any]:
        return {"step": step}

    def missing(self, error: OSError) -> str:
        return f"{self.url}: {error.strerror}."

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def number(self, i: int) -> int:
        return i

    def read_block(self, block_id: int) -> Arrays:
        return {"pixel": self.values[block_id * self.n_block :][: self.n_block]}

    def close(self) -> None:
        pass


class NumberedFromOne(Bytes):
    def number(self, i: int) -> int:
        return i + 1


class LosesOptions(Bytes):
    def kept(self, step: int) -> dict[str, Any]:
        return {}


class Unnamed(Bytes):
    def missing(self, error: OSError) -> str:
        return "something is wrong."


class Doubles(Bytes):
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)


class Words(Bytes):
    def __init__(self, url: str, storage_options: Any = None, step: int = 4) -> None:
        super().__init__(url, storage_options, step)
        self.schema = {"word": Field(np.dtype("S6"))}

    def read_block(self, block_id: int) -> Arrays:
        return {"word": super().read_block(block_id)["pixel"].copy().view("S6")[:, 0]}


class OtherField(Bytes):
    """A right store with a field that only a parser of its user reads."""

    def __init__(self, url: str, storage_options: Any = None, step: int = 4) -> None:
        super().__init__(url, storage_options, step)
        self.schema = {"depth": Field(np.dtype(np.uint16), (step // 2,))}

    def read_block(self, block_id: int) -> Arrays:
        return {"depth": super().read_block(block_id)["pixel"].copy().view(np.uint16)}


class AllAtOnce(Bytes):
    def read_block(self, block_id: int) -> Arrays:
        return {"pixel": self.values}


class OtherRows(Bytes):
    def read_rows(self, block_id: int, rows: Any) -> Arrays:
        return {"pixel": self.values[rows]}


class OneBuffer(Bytes):
    memory: Any = None

    def read_block(self, block_id: int) -> Arrays:
        values = super().read_block(block_id)["pixel"]
        self.memory = np.zeros((self.n_block, 6), np.uint8) if self.memory is None else self.memory
        self.memory[: len(values)] = values
        return {"pixel": self.memory[: len(values)]}


class PlainError(Bytes):
    def __init__(self, url: str, storage_options: Any = None, step: int = 4) -> None:
        Path(url).stat()
        super().__init__(url, storage_options, step)


@pytest.fixture
def records(tmp_path: Path) -> str:
    path = tmp_path / "records.bytes"
    path.write_bytes(np.random.default_rng(0).integers(0, 256, 210, np.uint8).tobytes())
    return str(path)


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (NumberedFromOne, "blocks have to be numbered 0, 1, 2"),
        (LosesOptions, "a pickled store reads other records. Pass all options"),
        (Unnamed, "the error of a missing file does not name it"),
        (Doubles, "the schema has {'pixel': 'float64'}. Expected {'pixel': 'uint8'}."),
        (Words, "the schema has {'word': '|S6'}. Expected np.dtype of numbers"),
        (AllAtOnce, "Expected {'pixel': ((8, 6), dtype('uint8'))}, of the schema and block.n"),
        (OtherRows, "pixel from read_rows is"),
        (OneBuffer, "Return new memory each time, or a view of the file"),
        (
            PlainError,
            "a missing file raises FileNotFoundError(2, 'No such file or directory'). Raise DataError(f\"{url}",
        ),
    ],
)
def test_a_wrong_store_is_found(cls: type[Store], says: str, records: str) -> None:
    with pytest.raises(PartError, match=re.escape(says)):
        check_store(cls, records, step=6)


@pytest.mark.parametrize("cls", [Bytes, OtherField])
def test_a_right_store_passes(cls: type[Store], records: str) -> None:
    assert check_store(cls, records, step=6) == []


def classes_in(text: str) -> dict[str, Any]:
    """Return the classes that a module's text defines."""
    found: dict[str, Any] = {"__name__": "own"}
    exec(text, found)
    return found


def test_the_parts_of_the_documentation_pass() -> None:
    blocks = re.findall(r"```python\n(# \w+\.py\n.*?)```", (ROOT / "docs/parts.md").read_text(), re.DOTALL)
    notebook = json.loads((ROOT / "docs/notebooks/own-layer.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    blocks += re.findall(r'text = """\n(.*?)"""', "\n".join(cells), re.DOTALL)
    blocks.append((ROOT / "examples/parts/swish.py").read_text())
    found = [each for text in blocks for each in classes_in(text).values() if getattr(each, "__module__", "") == "own"]
    assert {each.__name__ for each in found} >= {"Double", "Scale", "Swish", "HeavyBall", "Halving", "Readings"}
    for each in found:
        if issubclass(each, Layer):
            check_layer(each, [(3, 4)])
        elif issubclass(each, Updater):
            check_updater(each)
        elif issubclass(each, Schedule):
            rate = each(LRGenConf(type="Fixed", base_lr=0.1))
            assert [rate(0), rate(999), rate(1000)] == [0.1, 0.1, 0.05]


def test_the_update_rule_of_the_examples_passes() -> None:
    check_updater(classes_in((ROOT / "examples/parts/lion.py").read_text())["Lion"], learning_rate=0.01)


@pytest.mark.long
def test_the_exam_needs_no_test_tools() -> None:
    code = "import sys, singa_dask.testing; assert not {'pytest', 'hypothesis', 'tests'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
