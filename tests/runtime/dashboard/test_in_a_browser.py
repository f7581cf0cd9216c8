"""The page in a browser: a job that runs, is called something nasty, and ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from distributed import Client
from selenium.webdriver import Chrome

from tests.runtime.dashboard.browser import browser
from tests.runtime.processes import driver_of, long, wait_until

pytestmark = pytest.mark.cluster
NAME = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'
"""Of a job; a browser that takes it for markup sets ``broken``."""


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    with browser(tmp_path / "profile") as chrome:
        yield chrome


def text(chrome: Chrome, css: str) -> str:
    """Return the text of the first element, empty if there is none yet; the page may replace it meanwhile."""
    script = "const found = document.querySelector(arguments[0]); return found ? found.innerText : ''"
    return str(chrome.execute_script(script, css))


def step(chrome: Chrome) -> int:
    """Return the step that the page shows, -1 if none."""
    shown = text(chrome, "#head .stats dd").split(" of ")[0].replace(",", "")
    return int(shown) if shown.isdigit() else -1


def length_of_the_curve(chrome: Chrome) -> float:
    """Return the length of the first curve of training in pixels, 0 if there is none yet."""
    script = "const line = document.querySelector('#curves path.line.train'); return line ? line.getTotalLength() : 0"
    return float(chrome.execute_script(script))


@pytest.mark.long
def test_a_job_is_followed_live_whatever_it_is_called(client: Client, chrome: Chrome, tmp_path: Path) -> None:
    job = long("hybrid").model_copy(update={"name": NAME})
    (tmp_path / "run").mkdir()
    driver = driver_of(job, client, run_url=str(tmp_path / "run"), on_event=lambda event: None, job_id=f"{NAME}-1")
    thread = threading.Thread(target=driver.run)
    thread.start()
    try:
        port = client.scheduler_info(n_workers=-1)["services"]["dashboard"]
        url = f"http://127.0.0.1:{port}/singa"
        wait_until(lambda: requests.get(url).status_code == 200, "the page is there, as the first job has come")
        chrome.get(url)
        wait_until(lambda: step(chrome) > 0, "the page shows a step")
        first = step(chrome)
        wait_until(lambda: step(chrome) > first, "the page shows a later step")
        wait_until(lambda: "computes" in text(chrome, "#workers"), "the page shows what workers do")
        assert text(chrome, "#head h2") == text(chrome, "#jobs .name") == NAME
        units = chrome.execute_script(
            "return [...document.querySelectorAll('#topology .unit')].map(u => u.textContent)"
        )
        assert sorted(units) == ["S 0.0", "S 0.1", "W 0.0", "W 1.0"]
        assert {text(chrome, f"#curves .chart:nth-child({n}) h3").split()[0] for n in (1, 2, 3)} == {
            "Loss",
            "Accuracy",
            "Samples",
        }
        wait_until(lambda: length_of_the_curve(chrome) > 10, "the page shows the curve of two points or more")
        numbers = "return [...document.querySelectorAll('#curves text.group')].map(each => each.textContent)"
        wait_until(lambda: {*chrome.execute_script(numbers)} == {"0", "1"}, "the lines have the number of their group")
        assert chrome.execute_script("return [0, 12000, 4e7].map(brief)") == ["0", "12,000", "40M"]
        phone = {"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        wait_until(lambda: chrome.execute_script("return window.innerWidth") == 420, "the window is narrow")
        assert chrome.execute_script("return document.documentElement.scrollWidth") <= 420
    finally:
        driver.stop()
        thread.join()
    wait_until(lambda: "stopped" in text(chrome, "#head .pill"), "the page shows the end")
    wait_until(lambda: "Ended (1)" in text(chrome, "#jobs"), "the list, which is asked for before the job, says so too")
    assert chrome.execute_script("return document.querySelectorAll('script, img').length + (window.broken || 0)") == 1
    severe = [
        line for line in chrome.get_log("browser") if line["level"] == "SEVERE" and "favicon" not in line["message"]
    ]
    assert severe == []
