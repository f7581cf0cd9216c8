"""A headless browser: Chromium of the system, driven by selenium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

__all__ = ["browser"]

DEMANDED = os.environ.get("CI") == "true" or os.environ.get("SINGA_DASK_REQUIRE_BROWSER") == "1"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--window-size=1400,1000",
)  # fmt: skip


@contextmanager
def browser(directory: Path) -> Iterator[Chrome]:
    """Start a browser with an empty profile in a directory; without one the test is skipped, but not in CI."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        reason = "chromium and chromedriver are not both installed"
        if DEMANDED:
            pytest.fail(f"a browser is demanded, but: {reason}")
        pytest.skip(reason)
    chromium, driver = map(str, programs)
    options = ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={directory}"):
        options.add_argument(flag)
    with Chrome(options=options, service=Service(driver)) as started:
        yield started
