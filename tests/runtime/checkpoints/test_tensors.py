"""Encoding as safetensors: the bytes that the library writes."""

from __future__ import annotations

import hashlib
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from singa_dask.runtime.checkpoints.author import write_file
from singa_dask.runtime.checkpoints.checkpoint import SavedTensor, write_part
from singa_dask.runtime.checkpoints.safetensors import tensor_chunks

DTYPES = ["float16", "float32", "float64", *(f"{kind}{n}" for kind in ("int", "uint") for n in (8, 16, 32, 64))]
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@given(st.dictionaries(st.text('ab1./é"\\\n', max_size=6), st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=6))
def test_the_library_writes_the_same_bytes(described: dict[str, tuple[tuple[int, ...], str]]) -> None:
    random = np.random.default_rng(0)
    tensors = {name: random.integers(0, 100, shape).astype(dtype) for name, (shape, dtype) in described.items()}
    content = b"".join(tensor_chunks(tensors))
    assert content == save(tensors)
    for name, array in load(content).items():
        np.testing.assert_array_equal(array, tensors[name])


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError):
        tensor_chunks({"x": np.zeros(2, complex)})


def test_a_part_is_written_without_a_copy_of_it(tmp_path: Path) -> None:
    piece = SavedTensor(0, 0, "value", 1, np.arange(1 << 21, dtype=np.float32))
    tracemalloc.start()
    described = write_part(partial(write_file, str(tmp_path)), 0, 1, [piece], ["w"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < piece.array.nbytes / 4
    content = (tmp_path / described["file"]).read_bytes()
    assert content == b"".join(tensor_chunks({"w/value/0": piece.array}))
    assert (described["bytes"], described["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
