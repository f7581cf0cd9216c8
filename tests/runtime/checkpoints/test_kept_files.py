"""Files of checkpoints that are kept on their host."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from singa_dask.runtime.checkpoints.author import keep_file


def test_kept_files_are_deleted_after_a_month_when_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    urls = [f"hdfs://nn/{name}/checkpoint/step-3" for name in ("old", "recent", "new")]
    old, recent = (Path(keep_file(url, "part", b"1", "no").partition(":")[2]) for url in urls[:2])
    for folder, days in ((old, 31), (recent, 29)):
        then = time.time() - days * 86400
        os.utime(folder, (then, then))
        os.utime(folder.parent, (then, then))
    new = Path(keep_file(urls[2], "part", b"1", "no").partition(":")[2])
    assert not old.parent.exists()
    assert [(folder / "part").read_bytes() for folder in (recent, new)] == [b"1", b"1"]
