"""What several verbs share: options, how those that read records are told what to read, and what verbs print."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import click

from singa_dask.redaction import redact
from singa_dask.shown import STDERR, shown

# What verbs print: messages without secrets, and tables as wide as the terminal allows.


GAP = "  "
UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def echo(message: object = "", *, err: bool = False, color: bool | None = None, nl: bool = True) -> None:
    """Print a message as it may be `shown`, see `click.echo`; where stderr cannot be written, nothing.

    Without ``nl`` it is data: where stdout is no terminal it stays as it is, but for secrets.
    """
    text = str(message)
    is_data = not nl and not (sys.stdout and sys.stdout.isatty())
    text = redact(text) if is_data else shown(text, coloured=bool(color))
    click.echo(text, file=STDERR if err else None, color=color, nl=nl)


@dataclass(frozen=True)
class TextColumn:
    """A column of a table.

    Attributes
    ----------
    name : str
    cells : sequence of str
    rank : int
        Where there is no room for all columns, that of the highest rank is left out first, one of rank 0 never.
    right : bool
        Whether it is aligned to the right.
    """

    name: str
    cells: Sequence[str]
    rank: int = 0
    right: bool = False

    @cached_property
    def width(self) -> int:
        """Width of its longest cell."""
        from rich.cells import cell_len

        return max(cell_len(shown(text, one_line=True)) for text in (self.name, *self.cells))


def table(columns: Sequence[TextColumn], width: int | None) -> list[str]:
    """Return the lines of a table, without columns that are empty, or for which there is no room; None: no limit."""
    kept = [column for column in columns if any(column.cells)]
    while width is not None and sum(each.width + len(GAP) for each in kept) - len(GAP) > width:
        highest = max(column.rank for column in kept)
        if not highest:
            break
        kept = [column for column in kept if column.rank != highest]
    rows = list(zip(*((column.name, *column.cells) for column in kept), strict=True))
    return align(rows, [i for i, column in enumerate(kept) if column.right])


def align(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "") -> list[str]:
    """Return rows as lines of aligned columns, those with an index in ``right`` aligned to the right."""
    from rich.cells import cell_len

    cells = [[shown(text, one_line=True) for text in row] for row in rows]
    lengths = [[cell_len(cell) for cell in row] for row in cells]
    widths = [max(column) for column in zip(*lengths, strict=True)]
    lines = []
    for row, taken in zip(cells, lengths, strict=True):
        gaps = [" " * (width - length) for width, length in zip(widths, taken, strict=True)]
        padded = [gap + cell if i in right else cell + gap for i, (cell, gap) in enumerate(zip(row, gaps, strict=True))]
        lines.append((indent + GAP.join(padded)).rstrip())
    return lines


def terminal_width() -> int | None:
    """Return the width of the terminal that stdout is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def ago(seconds: float) -> str:
    """Return a time span in its largest unit, e.g. ``"3 min"``."""
    for name, length in UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


CPU = "--cpu"
"""Placeholder for the changes of this option among those of ``--set``."""
AUTO = "auto"
"""Value of ``--cluster`` of run for a cluster block that is planned."""
MEASURING = "measuring what the job costs on this machine, and simulating it ..."
"""What is said before a plan, which may take a minute."""
LATEST = "latest"
"""Value of ``--resume`` without an argument."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print the summary as the last line of stdout.")


Command = Callable[..., Any]


def with_options(command: Command, *decorators: Callable[[Command], Command]) -> Command:
    """Decorate a command; the last one is that which help shows first."""
    return functools.reduce(lambda decorated, decorate: decorate(decorated), decorators, command)


def job_options(command: Command) -> Command:
    """Give a command the job file, the options that change what it says, and ``--strict``."""

    @functools.wraps(command)
    def with_cpu(*, sets: tuple[str, ...], cpu: bool, **others: Any) -> Any:
        return command(sets=(*sets, CPU) if cpu else sets, **others)

    return with_options(
        with_cpu,
        click.option(
            "--cpu", is_flag=True, help="Compute on the CPU whatever the job says; for one with gpu or cuDNN."
        ),
        click.option("--strict", is_flag=True, help="Treat warnings on the job file as errors."),
        click.option(
            "--cluster",
            "cluster_file",
            metavar="FILE",
            help="Take the cluster block from this file, or from one that is built in: allreduce, downpour, hogwild, "
            "hybrid, sandblaster, single. For run also auto: the fastest one by plan.",
        ),
        click.option(
            "--set",
            "sets",
            metavar="KEY=VALUE",
            multiple=True,
            help="Change a value, e.g. updater.learning_rate.base_lr=0.1 or "
            "neuralnet.layer[fc1].innerproduct_conf.num_output=64. Repeatable.",
        ),
        click.argument("job_file", metavar="JOB.yaml"),
    )


def init_from_option(use: str) -> Callable[[Command], Command]:
    """Add ``--init-from``; ``use`` says what becomes of the values."""
    return click.option(
        "--init-from",
        metavar="URL",
        multiple=True,
        help=f"{use} the values of this checkpoint, by name of param, instead of the job's checkpoint_path: a run "
        "directory, a step of it, or a file or workspace of SINGA's. Repeatable; later ones win.",
    )


def scheduler_options(use: str) -> Callable[[Command], Command]:
    """Add ``--scheduler``, ``--scheduler-file`` and ``--wait``; ``use`` says what the cluster is for."""
    wait = click.option(
        "--wait",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=0.0,
        help="Wait so long for the scheduler, and for as many workers and free threads as are needed.",
    )
    return lambda command: cluster_options(use)(wait(command))


def cluster_options(use: str) -> Callable[[Command], Command]:
    """Add ``--scheduler`` and ``--scheduler-file``; ``use`` says what the cluster is for."""
    by_file = click.option("--scheduler-file", metavar="FILE", help="Find the scheduler by the file it has written.")
    by_address = click.option(
        "--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True, help=use
    )
    return lambda command: by_address(by_file(command))


def job_argument(command: Command) -> Command:
    """Give a command a job on a cluster, and the options that say which cluster."""
    argument = click.argument("job", metavar="JOB")
    return argument(cluster_options("Address of the scheduler that the job is on.")(command))


# -- reading records --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How to open a store.

    Attributes
    ----------
    backend : str or None
    shape : tuple of int
        Empty if not given.
    options : dict
        Other options of the format, by the names of its parameters.
    storage_options : dict
    """

    backend: str | None = None
    shape: tuple[int, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    storage_options: dict[str, Any] = field(default_factory=dict)


def reading_options(command: Command) -> Command:
    """Give a command the options of `Reading` except its backend, as the argument ``reading``."""

    @functools.wraps(command)
    def with_reading(
        *,
        shape: str | None,
        resize: str | None,
        channels: int | None,
        separator: str | None,
        header: bool | None,
        no_label: bool,
        features: str | None,
        label: str | None,
        options: tuple[str, ...],
        storage_options: tuple[str, ...],
        backend: str | None = None,
        **others: Any,
    ) -> Any:
        known = {
            "resize": numbers("--resize", resize, "x", "32x32"),
            "channels": channels,
            "separator": separator,
            "header": header,
            "has_label": False if no_label else None,
            "features": None if features is None else [name.strip() for name in features.split(",")],
            "label": label,
        }
        named = {name: value for name, value in known.items() if value is not None}
        reading = Reading(
            backend,
            tuple(numbers("--shape", shape, ",", "3,32,32") or ()),
            {**named, **_pairs("--option", options)},
            _pairs("--storage-option", storage_options),
        )
        return command(reading=reading, **others)

    return with_options(
        with_reading,
        click.option(
            "--storage-option",
            "storage_options",
            metavar="KEY=VALUE",
            multiple=True,
            help="Option of the file system, as in storage_options of a job file, e.g. client=webhdfs. Repeatable.",
        ),
        click.option(
            "--option",
            "options",
            metavar="KEY=VALUE",
            multiple=True,
            help="Any other option of the format, as in user_conf of a job file, e.g. block_bytes=65536. Repeatable.",
        ),
        click.option(
            "--label",
            metavar="NAME",
            help="Tables, jsonl, webdataset, hdf5, zarr: column, key or array with the label; of a table NAME,... for "
            "several labels.",
        ),
        click.option(
            "--features",
            metavar="NAME,...",
            help="Tables, jsonl, hdf5, zarr: columns, keys or array with the values of a record.",
        ),
        click.option("--no-label", is_flag=True, help="csv: lines do not begin with a label."),
        click.option(
            "--header/--no-header", default=None, help="csv: the first line has names of columns; told if not given."
        ),
        click.option("--separator", metavar="CHARS", help="csv: what parts the values; a comma if not given."),
        click.option("--channels", metavar="N", type=int, help="Images: 3 for colour (the default), 1 for grey."),
        click.option("--resize", metavar="HxW", help="Images: scale and crop at the centre."),
        click.option("--shape", metavar="N,N,...", help="Shape of one record, where the format does not store it."),
    )


def numbers(option: str, text: str | None, separator: str, example: str) -> list[int] | None:
    """Read ``3,32,32`` or ``32x32``."""
    try:
        sizes = None if text is None else [int(part) for part in text.split(separator)]
    except ValueError:
        sizes = []
    if sizes and min(sizes) < 1:
        raise click.UsageError(f"{option} {text!r}: expected numbers from 1 on, e.g. {example}.")
    if sizes is not None and (len(sizes) != 2 if separator == "x" else not sizes):
        raise click.UsageError(f"{option} {text!r}: expected numbers, e.g. {example}.")
    return sizes


def _pairs(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts; values are YAML, as in a job file."""
    from singa_dask.conf.yaml_text import read_plain

    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text!r}: expected KEY=VALUE.")
        pairs[key] = read_plain(value, f"{option} {text}")
    return pairs
