"""The page on a phone: nothing is wider than the window, and a reason in line is unfolded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from selenium.webdriver import Chrome
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from singa_dask.runtime.dashboard.pages import add_page
from tests.runtime.dashboard.browser import browser
from tests.runtime.dashboard.jobs import full, shown
from tests.runtime.processes import wait_until

REASON = " ".join(f"worker-{n}-0: ValueError: layer 'fc{n}' gets records of another shape." for n in range(20))
WIDTH = 390
LINE = 20
"""Height of a line, in pixels."""
HEIGHT = "return document.querySelector(arguments[0]).getBoundingClientRect().height"
TOO_WIDE = """
return [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth
    || (getComputedStyle(e).overflowX !== "visible" && getComputedStyle(e).textOverflow !== "ellipsis"
        && e.scrollWidth > e.clientWidth)
    || [...e.children].some(c => c.tagName === "SPAN" && c.className !== "sub line1"
        && c.scrollWidth > c.clientWidth && c.clientWidth)
).map(e => e.tagName + "." + (e.className.baseVal ?? e.className) + ": " + e.textContent.slice(0, 60))
"""


@pytest.fixture
def url() -> Iterator[str]:
    """Serve the page with a job of 64 units in many steps, one that has failed, and one in line."""
    record = full("a-job-with-a-rather-long-name-that-somebody-has-thought-of")
    for beat in range(10):
        workers = {f"worker-17-{n}": [12_345_678 + beat, 1e6 + 6.5 * beat, 0.0, 0.0, 0.0] for n in range(110, 113)}
        record.activity.add_progress({"process": 16, "workers": workers, "bytes": [10**12, 10**12]}, 1010.0 + beat)
    source = shown([full("another"), record], n_ended=1)
    ended = source._jobs.history.facts
    ended["ended-0"] = replace(ended["ended-0"], state="failed", reason=REASON, exit_code=1)
    facts = {"id": "waits", "name": "waits", "owner": "ann@host", "run_url": "", "topology": {}, "train_steps": 10}
    source._jobs.queue.turn(facts, client="c", why=REASON)
    loop = asyncio.new_event_loop()
    socket, port = bind_unused_port()
    thread = threading.Thread(target=loop.run_forever)

    async def serve() -> HTTPServer:
        application = Application()
        scheduler: Any = SimpleNamespace(http_application=application)
        add_page(scheduler, source)
        server = HTTPServer(application)
        server.add_sockets([socket])
        return server

    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
        yield f"http://127.0.0.1:{port}/singa"
        loop.call_soon_threadsafe(server.stop)
        asyncio.run_coroutine_threadsafe(server.close_all_connections(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.long
def test_all_is_seen_at_390_pixels(url: str, tmp_path: Path) -> None:
    with browser(tmp_path / "profile") as chrome:
        phone = {"width": WIDTH, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        chrome.get(url)
        wait_until(lambda: "computes" in text(chrome, "#workers"), "the page shows what workers do")
        assert chrome.execute_script(TOO_WIDE) == []
        assert chrome.execute_script(HEIGHT, "#jobs .line1") < 2 * LINE
        for job, state in (("ended-0", "failed"), ("waits", "queued")):
            chrome.get(f"{url}#{job}")
            wait_until(lambda state=state: state in text(chrome, "#head .pill"), "the page shows the job", 60)
            assert text(chrome, "#head .reason") == REASON
            if job == "waits":  # one line, and all of them once it is unfolded, for as long as nobody folds it
                assert chrome.execute_script(HEIGHT, "#head summary") < 2 * LINE
                chrome.find_element("css selector", "#head summary").click()
                shown_at = text(chrome, "#head .when")
                wait_until(lambda at=shown_at: text(chrome, "#head .when") != at, "the page is shown anew")
                assert chrome.execute_script(HEIGHT, "#head summary") > 10 * LINE
            assert chrome.execute_script(TOO_WIDE) == []


def text(chrome: Chrome, css: str) -> str:
    """Return the text of the first element, empty if there is none yet."""
    script = "const found = document.querySelector(arguments[0]); return found ? found.innerText : ''"
    return str(chrome.execute_script(script, css))
