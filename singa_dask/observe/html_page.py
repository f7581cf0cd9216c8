"""A page with the curves of runs and a table of their results: one file, which loads nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 72rem; margin: 2rem auto;
       padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; font-weight: 600; }}
svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }}
th {{ border-bottom: 2px solid #888; font-weight: 600; }}
th:first-child, td:first-child {{ text-align: left; }}
div {{ overflow-x: auto; }}
</style>
</head>
<body>
<h1>{title}</h1>
{picture}
<div><table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
</body>
</html>
"""


def page(title: str, svg: str, table: Sequence[Mapping[str, str]]) -> str:
    """Return the page.

    Parameters
    ----------
    title : str
    svg : str
        An SVG file.
    table : sequence of mapping
        Rows: text by column; a column that a row lacks is empty in it.
    """
    columns = list(dict.fromkeys(name for row in table for name in row))
    rows = [f"<tr>{_cells('td', (row.get(name, '') for name in columns))}</tr>" for row in table]
    return PAGE.format(
        title=html.escape(title),
        # without the XML declaration and the document type
        picture=svg[svg.index("<svg") :],
        head=_cells("th", columns),
        rows="\n".join(rows),
    )


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
