"""How pytest-xdist deals tests to its processes: by file, but a folder whose tests wait for clusters whole, and first.

Such a folder has clusters that all its tests share, so each of them is started once. The processes of pytest-xdist are
more than there are cores: while some of them wait, the others compute.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

__all__ = ["WHOLE", "unit_of"]

WHOLE = ("tests/hdfs", "tests/faults", "tests/runtime/job")
# with the folder whose cluster it uses
BESIDE = {"tests/runtime/dashboard": "tests/runtime/job"}


def unit_of(nodeid: str) -> str:
    """Return what a test is dealt with: its folder, if that is dealt whole, else its file."""
    path = PurePosixPath(nodeid.split("::", 1)[0])
    folder = BESIDE.get(str(path.parent), str(path.parent))
    return folder if folder in WHOLE else str(path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let folders that are dealt whole begin, as they take longest."""
    first = {folder: i for i, folder in enumerate(WHOLE)}
    items.sort(key=lambda item: first.get(unit_of(item.nodeid), len(first)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Deal folders where files would be dealt."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FolderScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return FolderScheduling(config, log)
