"""Warnings about data that are logged once in a process, however often the records are opened."""

from __future__ import annotations

import functools
import logging


@functools.lru_cache(1024)
def warn_once(logger: logging.Logger, text: str) -> None:
    """Log a warning, unless this process has logged the same one."""
    logger.warning("%s", text)
