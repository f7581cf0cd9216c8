"""Warnings about data, each logged once in a process."""

from __future__ import annotations

import functools
import logging


@functools.lru_cache(1024)
def warn_once(logger: logging.Logger, text: str) -> None:
    """Log a warning, unless this process has logged the same one."""
    logger.warning("%s", text)
