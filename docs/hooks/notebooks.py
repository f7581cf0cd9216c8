"""A page for each notebook, made when a site is built: its text, its code, and a link to the notebook itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def page(path: Path) -> str:
    """Return a notebook as Markdown."""
    title, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    link = f"This page is a notebook: [{path.name}]({path.name}) in `docs/notebooks`. Outputs are not shown.\n"
    return "\n".join([written(title), link, *map(written, cells)])


def written(cell: Mapping[str, Any]) -> str:
    """Return a cell as Markdown."""
    text = "".join(cell["source"])
    return f"```python\n{text}\n```\n" if cell["cell_type"] == "code" else f"{text}\n"
