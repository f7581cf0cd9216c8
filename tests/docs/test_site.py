"""The site of documentation is built without warnings, refers to nothing on other hosts, and its reference is whole."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import pytest

from singa_dask.api import REGISTRIES
from singa_dask.cli import main
from singa_dask.conf import schema
from tests.docs.pages import DOCS, README
from tests.snippets import ROOT

# Attributes by which a browser loads something when it shows a page.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href"}
TRAINING = [(kind, "training") for kind in ("updater", "schedule", "initialiser", "algorithm")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return place


def text(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


class Loaded(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if LOADED.get(tag) == name]


@pytest.mark.long
def test_every_page_is_built(site: Path) -> None:
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {f"{path.stem}.html" for path in DOCS.glob("*.md")} <= built
    assert {f"notebooks/{path.stem}.html" for path in DOCS.glob("notebooks/*.ipynb")} <= built
    assert not list(site.rglob("*.py"))


@pytest.mark.long
def test_a_page_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    loaded = [address for page in pages for address in Loaded(page.read_text()).addresses]
    assert len(loaded) > len(pages)
    assert [address for address in loaded if re.match(r"(\w+:)?//", address)] == []


def keys(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from part.get("properties", {})
        for value in part.values():
            yield from keys(value)


@pytest.mark.long
def test_the_reference_has_every_key(site: Path) -> None:
    page = (site / "reference/job.html").read_text()
    whole = schema(REGISTRIES)
    assert {key for key in keys(whole) if f"<code>{key}</code>" not in page} == set()
    assert {name for name in whole["definitions"] if f'id="{name}"' not in page} == set()


@pytest.mark.long
@pytest.mark.parametrize(("kind", "page"), [("layer", "layers"), ("store", "stores"), *TRAINING])
def test_the_reference_has_every_part(site: Path, kind: str, page: str) -> None:
    words = set(re.findall(r"[\w-]+", text(site / f"reference/{page}.html")))
    registry = REGISTRIES[kind]
    # other tests may have registered parts of their own
    ours = {name for name in registry.names() if registry.find(name).__module__.startswith("singa_dask.")}
    assert ours and ours <= words


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            yield from param.opts
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield name
            yield from options(inner, context)


@pytest.mark.long
def test_the_reference_has_every_option(site: Path) -> None:
    page = text(site / "reference/cli.html")
    found = set(options(main, click.Context(main)))
    assert "--init-from" in found
    assert {name for name in found if name not in page} == set()
    assert "\b" not in page and "\\b" not in page


def test_links_of_readme_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README.read_text())
    assert len(links) > 10
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
