"""Parsers of the user's own: how records become values and labels; and what stores of their own are told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.data.codecs.record import encode_record
from singa_dask.data.stores import Store, open_store
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs import InputContext, StoreInput
from singa_dask.inputs.targets import TargetInput
from singa_dask.layers import Feature, Layer
from singa_dask.net import memory, wiring
from singa_dask.ops import get_ops
from tests.cli.conftest import ROOT
from tests.contracts.records import write_pairs

DIGITS = str(ROOT / "data/digits/test.arrow")


def make(kind: type[StoreInput], **store: Any) -> StoreInput:
    conf = {"name": "data", "type": "Own", "store_conf": {"batchsize": 4, **store}}
    layer = kind(LayerConf.model_validate(conf), InputContext(phase=Phase.TRAIN))
    wiring.wire(layer, [], get_ops("numpy"))
    layer.features[0].consumed_as.add("data")
    return layer


def batch(layer: StoreInput) -> tuple[Any, Any]:
    layer.check_source()
    memory.allocate(layer)
    try:
        layer.forward(Phase.TRAIN | Phase.FORWARD)
    finally:
        layer.close()
    return layer.features[0].data, layer.features[0].records.labels


class Top(StoreInput):
    """Upper halves of digits, and whether they are odd."""

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        return arrays["pixel"][:, :14], arrays["label"] % 2


def test_pixels_become_other_values_and_labels() -> None:
    with open_store(DIGITS) as store:
        first = {name: array[:4] for name, array in store.read_block(0).items()}
    values, labels = batch(make(Top, path=DIGITS, shape=[14, 28], std_value=255.0))
    np.testing.assert_allclose(values, first["pixel"][:, :14] / 255, rtol=1e-6)
    assert labels.tolist() == (first["label"] % 2).tolist()


def test_what_a_parser_makes_must_have_the_shape_of_the_job() -> None:
    with pytest.raises(ConfigError) as caught:
        make(Top, path=DIGITS, shape=[28, 28]).check_source()
    assert str(caught.value) == (
        "store_conf.path: layer data: Top.parse() returned values (1, 14, 28) and labels (1,) for 1 records, "
        "expected values (1, 28, 28), and labels (1,) or None."
    )


class Bag(StoreInput):
    """How often each letter comes in what a line says after its label, a word."""

    KINDS: Sequence[bytes] = (b"good", b"bad")

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        lines = [bytes(line).rstrip(b"\0").split(b" ", 1) for line in arrays["line"]]
        letters = np.arange(ord("a"), ord("z") + 1)
        values = [(np.frombuffer(text, np.uint8)[:, None] == letters).sum(axis=0) for _, text in lines]
        return np.stack(values), [self.KINDS.index(kind) for kind, _ in lines]


def test_lines_of_text(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"good aab\r\nbad zz top\r\ngood b\r\nbad c\n\n")
    values, labels = batch(make(Bag, path=str(path), backend="lines", shape=[26]))
    assert labels.tolist() == [0, 1, 0, 1]
    assert values[:, [0, 1, 2, 25]].tolist() == [[2, 1, 0, 0], [0, 0, 0, 2], [0, 1, 0, 0], [0, 0, 1, 0]]
    with pytest.raises(ConfigError, match="only line, expected"):
        make(StoreInput, path=str(path), backend="lines", shape=[26]).check_source()


def test_lines_are_the_same_in_blocks_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    lines = [b"x" * (i * i % 17) for i in range(100)] + [b"end"]
    path.write_bytes(b"\n".join(lines))
    for block_bytes in (20, 64, 1 << 20):
        with open_store(str(path), "lines", block_bytes=block_bytes) as store:
            read = [bytes(line).rstrip(b"\0") for block in store.blocks for line in store.read_block(block.id)["line"]]
        assert read == lines


@pytest.mark.long
def test_one_long_line_does_not_make_each_record_long(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"x\n" * 2000 + b"y" * (1 << 18) + b"\nz\n")
    with pytest.raises(DataError) as caught:
        open_store(str(path), "lines")
    assert str(caught.value) == (
        f"{path}, line 2001: the line has 262,144 bytes. Each record is padded to the longest line, and "
        "2,002 records of a block would need 0.5 GiB, but at most 256 MiB are allowed. Split long lines, or read "
        "smaller blocks: block_bytes: 1024."
    )
    with open_store(str(path), "lines", block_bytes=1024) as store:
        assert store.count == 2002
        lines = [line for block in store.blocks for line in store.read_block(block.id)["line"][-2:]]
        assert bytes(lines[-1]).rstrip(b"\0") == b"z"


class Reading(StoreInput):
    """Numbers of SINGA's records, of which the first is the label."""

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        return arrays["data"][:, 1:], arrays["data"][:, 0].astype(int)


def test_fields_of_records_of_singa(tmp_path: Path) -> None:
    path = str(tmp_path / "records.bin")
    rows = np.arange(20, dtype=np.float32).reshape(5, 4)
    write_pairs(path, ((str(i), encode_record([4], data=row)) for i, row in enumerate(rows)))
    values, labels = batch(make(Reading, path=path, shape=[3]))
    assert values.tolist() == rows[:4, 1:].tolist()
    assert labels.tolist() == [0, 4, 8, 12]


class Counting(Store):
    """Numbers from ``first`` on, in no file."""

    def __init__(self, url: str, storage_options: Any = None, first: int = 0) -> None:
        super().__init__(url, storage_options, first=first)
        self.first = first
        self.blocks = (Block(0, 10, url, 0, 40),)
        self.schema = {"data": Field(np.dtype(np.float32), (1,))}

    def read_block(self, block_id: int) -> Arrays:
        return {"data": np.arange(self.first, self.first + 10, dtype=np.float32)[:, None]}

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def counting() -> str:
    return f"{__name__}.Counting"


def test_a_store_is_told_what_user_conf_says(counting: str) -> None:
    store = {"path": "memory://none", "backend": counting, "shape": [1], "has_label": False}
    values, labels = batch(make(StoreInput, **store, user_conf={"first": 7}))
    assert values.ravel().tolist() == [7, 8, 9, 10]
    assert labels is None
    with pytest.raises(ConfigError) as caught:
        make(StoreInput, **store, user_conf={"frist": 7}).check_source()
    told = "memory://none: Counting: got an unexpected keyword argument 'frist'"
    # later versions of Python go on with a suggestion
    assert str(caught.value).startswith(f"store_conf.path: {told}")


class Targets(Counting):
    """The same numbers as targets, which are no arrays."""

    def __init__(self, url: str, storage_options: Any = None, first: int = 0) -> None:
        super().__init__(url, storage_options, first)
        self.schema |= {"target": Field(np.dtype(np.float32))}

    def read_block(self, block_id: int) -> Arrays:
        return {**super().read_block(block_id), "target": np.arange(self.first, self.first + 10, dtype=np.float32)}


def test_targets_of_a_store_may_be_numbers() -> None:
    stored = {"path": "memory://none", "backend": f"{__name__}.Targets", "shape": [1], "has_label": False}
    values, _ = batch(make(TargetInput, **stored, user_conf={"first": 3}))
    assert values.tolist() == [[3], [4], [5], [6]]


def test_a_store_of_ours_is_told_it_too() -> None:
    with pytest.raises(ConfigError, match=r"stores of format arrow take no option 'first'\. Known: label\."):
        make(StoreInput, path=DIGITS, shape=[28, 28], user_conf={"first": 7}).check_source()


def test_a_layer_that_says_nothing_is_told_so() -> None:
    with pytest.raises(TypeError, match="Layer has no setup"):
        wiring.wire(Layer(LayerConf(name="own", type="Own"), InputContext()), [Feature((1, 1))], get_ops("numpy"))


def test_a_batch_that_changes_its_shape_is_an_error() -> None:
    class Fickle(StoreInput):
        def parse(self, arrays: Arrays) -> tuple[Any, Any]:
            return arrays["pixel"], arrays["label"][:1]

    with pytest.raises(DataError, match=r"returned values \(4, 28, 28\) and labels \(1,\) for 4 records"):
        batch(make(Fickle, path=DIGITS, shape=[28, 28]))


@pytest.mark.parametrize(
    ("label", "why"), [(0.5, "0.5 is not an integer"), (2**40, f"{2**40} does not fit in 32 bits")]
)
def test_labels_of_a_parser_are_not_cut_off(label: float, why: str) -> None:
    class Odd(StoreInput):
        def parse(self, arrays: Arrays) -> tuple[Any, Any]:
            return arrays["pixel"], [0, 1, label, 3][: len(arrays["pixel"])]

    with pytest.raises(DataError, match=rf"layer data, row 2 of a batch: the label {why}"):
        batch(make(Odd, path=DIGITS, shape=[28, 28]))
