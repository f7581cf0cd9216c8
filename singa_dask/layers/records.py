"""Stores as ``store_conf`` describes them: opened with the options that a job gives, and compared with it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from singa_dask.conf import StoreConf
from singa_dask.data import STORES, Store, detect, fs, open_store
from singa_dask.data.image import IMAGE_STORES
from singa_dask.data.store import is_pattern
from singa_dask.errors import DataError
from singa_dask.registry import suggest

__all__ = ["open_records"]


def open_records(conf: StoreConf, url: str, backend: str | None, storage_options: fs.Options) -> Store:
    """Open a store with the options that ``store_conf`` has for its format.

    Raises
    ------
    DataError
        It cannot be opened, or does not take one of the options.
    """
    image = {"resize": conf.resize, "channels": conf.channels} if conf.resize or conf.channels != 3 else {}
    if (image or conf.user_conf) and not backend and not is_pattern(url):
        backend = detect(url, conf.storage_options)
    if image and backend not in IMAGE_STORES:
        message = "resize and channels are for image files. Convert with --resize, or give a backend of images."
        raise DataError(f"{url}: {message} Known: {', '.join(IMAGE_STORES)}.")
    if conf.user_conf and backend:
        _check_keywords(backend, url, conf.user_conf)
    return open_store(url, backend, storage_options, torn=conf.on_error != "raise", **image, **conf.user_conf)


def _check_keywords(backend: str, url: str, given: Mapping[str, Any]) -> None:
    """Check that a store takes what ``user_conf`` says."""
    known = inspect.signature(STORES.find(backend)).parameters
    unknown = [] if any(each.kind == each.VAR_KEYWORD for each in known.values()) else sorted(given.keys() - known)
    if unknown:
        options = known.keys() - {"url", "storage_options"}
        hint = suggest(unknown[0], options) if options else "It takes none."
        raise DataError(f"{url}: {backend} takes no {unknown[0]!r} from user_conf. {hint}")
