"""Write HTML pages with pictures and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

META = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
PAGE_STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --soft: #5b6169; --line: #d5d9de; --page: #fff; --best: #e3f2e6; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8ea; --soft: #a3abb5; --line: #3b424b; --page: #16191d; --best: #1e3a26; }
}
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { margin: .4rem 0; max-width: 60rem; } .soft { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13.5px; width: 100%; }
th, td { padding: .35rem .45rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child, .text { text-align: left; } td.best { background: var(--best); font-weight: 600; }
small { display: block; color: var(--soft); white-space: nowrap; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; display: block; }
@media print {
  :root { --text: #000; --soft: #444; --line: #bbb; --page: #fff; --best: #eee; }
  body { margin: 0; max-width: none; font-size: 11px; } table { font-size: 9.5px; }
  th, td { padding: .2rem .3rem; } figure, svg, tr { break-inside: avoid; }
  .wide { overflow: visible; }
}
"""


def write_page(title: str, parts: Iterable[str]) -> str:
    """Return an HTML page with a title and parts, which are HTML."""
    head = f"{META}<title>{escape(title)}</title><style>{PAGE_STYLE}</style>"
    body = "\n".join((f"<h1>{escape(title)}</h1>", *parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def picture(svg: bytes) -> str:
    """Return an SVG file as a part of a page, without its XML declaration and document type."""
    text = svg.decode()
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def table(
    rows: Sequence[Mapping[str, str]], texts: Collection[str] = (), best: Collection[tuple[str, int]] = ()
) -> str:
    """Return an HTML table. Text in parentheses at the end of a cell is shown on a line of its own.

    Parameters
    ----------
    rows : sequence of mapping
        For each row, the text of each cell by column. Missing cells are empty, and columns without text are dropped.
    texts : collection of str
        Columns with words, which are aligned to the left.
    best : collection of (str, int)
        Column and row of each cell to highlight.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row if any(each.get(name) for each in rows)))
    lines = [_table_line("th", columns, columns, texts)]
    for i, row in enumerate(rows):
        cells = [row.get(name, "") for name in columns]
        lines.append(_table_line("td", cells, columns, texts, [name for name in columns if (name, i) in best]))
    return f'<div class="wide"><table><thead>{lines[0]}</thead><tbody>{"".join(lines[1:])}</tbody></table></div>'


def _table_line(
    tag: str, cells: Iterable[str], columns: Iterable[str], texts: Collection[str], best: Collection[str] = ()
) -> str:
    line = ""
    for cell, name in zip(cells, columns, strict=True):
        figure, _, more = cell.partition(" (") if name not in texts and cell.endswith(")") else (cell, "", "")
        kind = ' class="text"' if name in texts else " class=best" if name in best else ""
        small = f"<small>{escape(more[:-1])}</small>" if more else ""
        line += f"<{tag}{kind}>{escape(figure)}{small}</{tag}>"
    return f"<tr>{line}</tr>"
