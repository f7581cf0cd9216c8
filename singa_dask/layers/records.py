"""Stores as ``store_conf`` describes them: opened with the options that a job gives, and compared with it."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)
