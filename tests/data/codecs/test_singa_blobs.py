"""Checkpoints of SINGA: read, written byte for byte, and refused when they are something else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from singa_dask.data.codecs.protobuf import BYTES, FIXED32, VARINT, key, varint
from singa_dask.data.codecs.singa_blobs import StoredParam, plain_param_name, read_blobprotos
from singa_dask.errors import CheckpointError
from tests.blobprotos import write_blobprotos
from tests.selection import few_examples

GOLD = Path(__file__).parents[2] / "gold"


@pytest.mark.parametrize(
    "path", sorted([*GOLD.glob("start/*.bin"), *GOLD.glob("end/*.bin")]), ids=lambda path: path.name
)
def test_files_of_singa_come_back_byte_for_byte(path: Path) -> None:
    content = path.read_bytes()
    params = read_blobprotos(content)
    n_layers = 3 if path.name.startswith(("conv", "mp1")) else 2
    names = [f"{kind}{i}" for i in range(1, n_layers + 1) for kind in "wb"]
    versions = {20} if path.parent.name == "end" else {1}
    if path.name.startswith("gru"):
        names = [*(f"{gate}_{kind}" for kind in ("hx", "hh", "b") for gate in "zrc"), "w", "b"]
        # written while updates were under way; its values have seen 20 at the end, as the last rate is 0
        versions = {20, 21} if path.parent.name == "end" else {2, 3}
    assert [plain_param_name(name) for name in params] == names
    assert {param.version for param in params.values()} == versions
    assert write_blobprotos(params) == content


@few_examples(25)
@given(
    st.dictionaries(
        st.text(min_size=1),
        st.builds(
            StoredParam,
            arrays.arrays(np.float32, arrays.array_shapes(max_dims=3), elements=st.floats(width=32)),
            st.integers(-1, 2**31 - 1),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_is_read(params: dict[str, StoredParam]) -> None:
    found = read_blobprotos(write_blobprotos(params))
    assert list(found) == list(params)
    for name, param in params.items():
        assert found[name].version == param.version
        np.testing.assert_array_equal(found[name].values, param.values)


def test_every_form_of_repeated_fields_is_read() -> None:
    floats = b"".join(key(2, FIXED32) + np.float32(x).tobytes() for x in (1.5, -2.0))
    shape = key(1, BYTES) + varint(2) + varint(1) + varint(2)
    blob = shape + floats
    content = key(2, VARINT) + varint(7) + key(4, BYTES) + varint(1) + b"w" + key(5, BYTES) + varint(len(blob)) + blob
    found = read_blobprotos(content)
    assert found["w"].version == 0
    np.testing.assert_array_equal(found["w"].values, [[1.5, -2.0]])


@pytest.mark.parametrize("content", [b"", b"hello", b"\x22\x01w", (GOLD / "start" / "csv_init.bin").read_bytes()[:-3]])
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"step5: not a checkpoint of SINGA"):
        read_blobprotos(content, "step5")
