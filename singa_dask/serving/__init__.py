"""Serve trained nets over HTTP. Requests that arrive together are computed in one batch.

Names are imported on first use, because they need Starlette and uvicorn (extra ``serve``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from singa_dask.lazy import lazy_names, require

if TYPE_CHECKING:
    from singa_dask.serving.batcher import Limits
    from singa_dask.serving.server import ModelServer

__all__ = ["Limits", "ModelServer"]

_load = lazy_names(__name__, {"batcher": ["Limits"], "server": ["ModelServer"]})


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("starlette", "serve", "serve")
        require("uvicorn", "serve", "serve")
    return _load(name)
