"""Sites by themselves."""

from __future__ import annotations

import pytest

from singa_dask.errors import LostUnitError
from singa_dask.runtime.checkpoints.manifest import SnapshotStore
from singa_dask.runtime.job.site import Site
from singa_dask.runtime.units.unit_host import may_succeed_again


def test_a_part_of_a_snapshot_that_nobody_has_any_more_is_no_error_of_the_job() -> None:
    site = Site()
    site.store = SnapshotStore()
    site.store.put("job", "step-4/part-0-of-1.safetensors", 4, b"content", 0)
    assert site._read_part("job", "step-4/part-0-of-1.safetensors", {"holders": []}) == b"content"
    with pytest.raises(LostUnitError, match="nobody has it any more") as error:
        site._read_part("job", "step-2/part-0-of-1.safetensors", {"holders": []})
    assert may_succeed_again(error.value)
