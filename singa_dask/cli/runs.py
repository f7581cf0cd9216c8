"""Commands for run directories and checkpoints: ``ckpt``, ``diff``, ``plot``, ``show``."""

from __future__ import annotations

import csv
import math
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from singa_dask import observe
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import align, echo
from singa_dask.errors import CheckpointError, ConfigError, DataError
from singa_dask.redaction import readable
from singa_dask.shown import plural

if TYPE_CHECKING:
    import numpy as np

    from singa_dask.observe.files.stored_run import StoredRun
    from singa_dask.observe.pictures.curves import Panel
    from singa_dask.runtime.checkpoints.checkpoint import Checkpoint


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def diff(first: str, second: str, as_json: bool) -> None:
    """Show how the jobs and the results of two runs differ.

    Jobs are compared with all defaults; keys are named as for --set.
    """
    from singa_dask.observe.files.job_values import differences, flatten, shown_pair
    from singa_dask.observe.files.stored_run import StoredRun, short_names

    runs = [StoredRun(first), StoredRun(second)]
    jobs = differences(*(flatten(run.job) for run in runs))
    results = differences(*(_result(run) for run in runs))
    if as_json:
        echo(observe.to_json({"runs": [run.url for run in runs], "job": jobs, "result": results}, indent=2))
        return
    names = short_names(runs) if runs[0].url != runs[1].url else [first, second]
    sections = []
    for title, pairs in (("job", jobs), ("result", results)):
        rows = [(f"  {key}", *shown_pair(*pair)) for key, pair in pairs.items()]
        sections.append("\n".join(align([(title, *names), *rows])) if rows else f"{title}: no difference")
    echo("\n\n".join(sections))


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@overwrite_option
@output_option(
    "-o",
    "--output",
    metavar="FILE",
    help="File in .png, .svg, or .html for a page with the results of the runs. By default a window, or a picture in "
    "the terminal if there is no display or the output is piped. Needs pip install 'singa-dask[plot]'.",
)
@click.option(
    "--over",
    "axis",
    type=click.Choice(["step", "epoch", "time"]),
    default="step",
    show_default=True,
    help="Horizontal axis of the curves.",
)
@click.option("--terminal", is_flag=True, help="Draw in the terminal even if there is a display.")
def plot(runs: tuple[str, ...], output: str | None, axis: str, terminal: bool) -> None:
    """Draw the curves of runs: metrics, learning rate, speed, waits.

    RUN is the URL of a run directory, also of a running job. Each run has its own colour. With several worker groups
    their mean is drawn, and each group as a thin line.
    """
    from singa_dask.observe.files.stored_run import StoredRun, short_names
    from singa_dask.observe.pictures.curves import panels_of
    from singa_dask.observe.pictures.figure import show_window
    from singa_dask.observe.pictures.text_figure import draw_text

    suffix = PurePosixPath(output).suffix if output else ""
    if output and suffix not in SUFFIXES:
        raise click.UsageError(f"-o {output}: the name must end in {', '.join(SUFFIXES)}.")
    if output and terminal:
        raise click.UsageError("-o writes a file, and --terminal draws in the terminal. Pass one of them.")
    stored = [StoredRun(url) for url in dict.fromkeys(runs)]
    names = short_names(stored)
    panels = panels_of(stored, axis)
    if not panels:
        raise ConfigError(f"{runs[0]}: no metrics yet. They are written every disp_freq and test_freq steps.")
    if output:
        _write(output, suffix, stored, names, panels, axis)
    elif terminal or not sys.stdout.isatty() or not show_window(panels, names, axis):
        width = min(max(shutil.get_terminal_size().columns, WIDTHS[0]), WIDTHS[1])
        colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        echo(draw_text(panels, names, axis, width, colours), color=True)


@click.command()
@click.argument("url", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print only its metrics, as CSV with a line for each event.")
def show(url: str, as_json: bool, as_csv: bool) -> None:
    """Describe a run: job, result, metrics, time, checkpoints.

    RUN is the URL of a run directory, also of a running job.
    """
    from singa_dask.observe.files.run_facts import facts_of
    from singa_dask.observe.files.stored_run import StoredRun
    from singa_dask.runtime.checkpoints.lookup import find_steps

    if as_json and as_csv:
        raise click.UsageError("--json describes the run, and --csv prints its metrics. Pass one of them.")
    run = StoredRun(url)
    if as_csv:
        names, rows = run.metrics_table()
        csv.writer(sys.stdout, lineterminator="\n").writerows([names, *rows])
        return
    facts = {**facts_of(run), "checkpoints": find_steps(url)}
    echo(observe.to_json(facts, indent=2) if as_json else "\n".join(_lines(facts)))


def _result(run: StoredRun) -> dict[str, Any]:
    """Return the result of a run by key path, with the last and the best metrics."""
    from singa_dask.observe.files.job_values import flatten
    from singa_dask.observe.files.run_facts import best_metric, result_of

    phases = {phase: run.summary.get(phase) or {} for phase in ("train", "validation", "test")}
    result = flatten({**result_of(run), **phases})
    if best := best_metric(run):
        result |= {f"best {best['metric']}": best["value"], f"best {best['metric']} at step": best["step"]}
    return {key: value for key, value in result.items() if value != {}}


SUFFIXES = (".png", ".svg", ".html")
WIDTHS = (40, 120)


def _write(output: str, suffix: str, runs: list[StoredRun], names: list[str], panels: list[Panel], axis: str) -> None:
    from singa_dask import fs
    from singa_dask.observe.pictures.figure import draw
    from singa_dask.observe.pictures.html import picture, table, write_page

    names = list(map(readable, names))
    content: str | bytes
    content = drawn = draw(panels, names, axis, ".svg" if suffix == ".html" else suffix)
    if suffix == ".html":
        title = f"{names[0]}: curves" if len(names) == 1 else f"Curves of {len(names)} runs"
        rows = [_row(run, name) for run, name in zip(runs, names, strict=True)]
        content = write_page(title, [picture(drawn), table(rows)])
    fs.write_atomic(fs.absolute(output), content)


def _row(run: StoredRun, name: str) -> dict[str, str]:
    """Return the row of a run for the table of results."""
    from singa_dask.observe.files.run_facts import best_metric, result_of

    result, best = result_of(run), best_metric(run)
    row = {"run": name, "state": str(result["state"]), "steps": str(result["steps"])}
    row["seconds"] = f"{result['seconds']:.1f}"
    if "samples_per_s" in result:
        row["samples/s"] = f"{result['samples_per_s']:.0f}"
    if best:
        row[f"best {best['metric']}"] = f"{best['value']:.4f} (step {best['step']})"
    return row


WORDS = {"compute": "computing, tests, checkpoints", "data": "waiting for data", "params": "waiting for params"}
MAX_DEVICES = 8


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the description."""
    why = ": no summary; it was killed, or runs on another machine" if facts["state"] == "lost" else ""
    yield f"{facts['id']}: {facts['state']}{why}"
    if facts.get("reason"):
        yield f"  {facts['reason']}"
    for sentence in facts["learning"].get("sentences", ()):
        yield f"  {sentence}"
    yield ""
    yield from align([(name, text) for name, text in _rows(facts) if text])
    if facts["metrics"]:
        names = list(dict.fromkeys(name for each in facts["metrics"].values() for name in each if name != "step"))
        rows = [("last metrics", "step", *names)]
        for phase, each in facts["metrics"].items():
            rows.append((f"  {phase}", str(each["step"]), *(_number(each.get(name)) for name in names)))
        yield ""
        yield from align(rows, range(1, len(names) + 2))
    if facts["time"]:
        yield ""
        yield "time of training"
        yield from align([(WORDS[kind], f"{100 * share:.1f} %") for kind, share in facts["time"].items()], (1,), "  ")
    if facts["step_parts"]:
        yield ""
        yield "profiled step (ms)"
        parts = facts["step_parts"].items()
        yield from align([(name.removesuffix("_ms"), _number(value)) for name, value in parts], (1,), "  ")
    if facts["layers"]:
        names = list(dict.fromkeys(name for each in facts["layers"].values() for name in each))
        rows = [("layer", *(name.replace("_ms", " (ms)") for name in names))]
        for layer, each in facts["layers"].items():
            rows.append((f"  {layer}", *(_number(each.get(name)) for name in names)))
        yield ""
        yield from align(rows, range(1, len(names) + 1))


def _rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "job", facts["job"]
    yield "directory", observe.short_url(facts["run"])
    if facts["started"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts["started"]))
        yield "started", f"{when} on {facts['host']}, in {facts['directory']}"
    yield "command", facts["command"]
    yield "version", facts["version"]
    yield "topology", describe_topology(facts["topology"])
    devices = Counter(facts["devices"].values())
    yield "devices", ", ".join(f"{n} × {name}" for name, n in list(devices.items())[:MAX_DEVICES])
    ahead = f" of {facts['train_steps']}" if facts["state"] != "done" and facts["train_steps"] else ""
    yield "steps", f"{facts['steps']}{ahead} in {facts['seconds']:.1f} s"
    speed = f"{facts['samples_per_s']:.0f} samples/s" if facts.get("samples_per_s") else ""
    step = facts.get("step_ms", {})
    yield "speed", f"{speed}, {step['median']:.2f} ms a step (95 % within {step['p95']:.2f} ms)" if step else speed
    if facts["staleness"]:
        yield "staleness", f"{facts['staleness_mean']:.2f} updates on average"
    if facts["best"]:
        yield "best", "{metric} = {value:.4f} at step {step}".format(**facts["best"])
    if facts["resumes"]:
        yield "resumed", plural(facts["resumes"], "time")
    if facts.get("restarts"):
        again = f"{plural(facts['recomputed_steps'], 'step')} computed again, {facts['lost_s']:.1f} s lost"
        yield "restarts", f"{facts['restarts']}: {again}"
    if facts.get("bad_records"):
        yield "bad records", str(facts["bad_records"])
    yield "memory", f"{facts['peak_memory'] / 2**20:.0f} MiB at most a process" if facts.get("peak_memory") else ""
    yield "checkpoints", _checkpoints(facts["checkpoints"])


def describe_topology(topology: Mapping[str, Any]) -> str:
    """Return a topology in words."""
    if not topology:
        return ""
    parts = [
        f"{plural(topology[f'n{kind}_groups'], f'{kind} group')} of {topology[f'n{kind}s_per_group']}"
        for kind in ("worker", "server")
    ]
    n_processes = len(topology.get("processes", ()))
    in_processes = f", in {n_processes} process{'es' if n_processes > 1 else ''}" if n_processes else ""
    return f"{', '.join(parts)}{in_processes}"


def _checkpoints(urls: Mapping[int, str]) -> str:
    """Return the steps of the checkpoints; of many, only the first and last. Empty without checkpoints."""
    if not urls:
        return ""
    steps = [str(step) for step in sorted(urls)]
    shown = steps if len(steps) <= 8 else [*steps[:2], "...", *steps[-4:]]
    return f"steps {', '.join(shown)}" if len(steps) != 1 else f"step {steps[0]}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


@click.command()
@click.argument("url", metavar="CHECKPOINT")
@click.argument("other", metavar="[CHECKPOINT]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.pass_context
def ckpt(ctx: click.Context, url: str, other: str | None, as_json: bool) -> None:
    """List and check the params of a checkpoint, or compare two.

    CHECKPOINT is a run directory, a step of it, or a SINGA file or workspace. For a run all checkpoints are checked,
    and the params of the newest good one are listed. With a second checkpoint the largest absolute difference of each
    param is shown.

    Exit codes: 0 all is well, 1 something is damaged, missing or not finite.
    """
    facts = _compare(url, other) if other else _describe(url)
    if as_json:
        echo(observe.to_json(facts, indent=2))
    else:
        echo("\n".join(_difference_lines(facts) if other else _checkpoint_lines(facts)))
        for problem in facts["problems"]:
            echo(problem, err=True)
    ctx.exit(1 if facts["problems"] else 0)


# -- one checkpoint --------------------------------------------------------------------------------------------------


def _describe(url: str) -> dict[str, Any]:
    """Describe the newest good checkpoint at a URL, and the problems of all checkpoints there."""
    from singa_dask import fs
    from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
    from singa_dask.runtime.checkpoints.lookup import find_steps

    steps = find_steps(url)
    if not steps and not fs.exists(fs.join(url, "manifest.json")):  # each step has a manifest, even an incomplete step
        return _describe_values(url)
    problems: list[str] = []
    good: Checkpoint | None = None
    states = {}
    for step_url in [steps[step] for step in sorted(steps, reverse=True)] or [url]:
        try:
            checkpoint = Checkpoint(step_url)
            checkpoint.verify()
        except (CheckpointError, DataError) as error:
            problems.append(str(error))
            states[step_url] = "damaged"
            continue
        states[step_url] = "good"
        good = good or checkpoint
    if good is None:
        return {"url": url, "checkpoints": states, "params": {}, "problems": problems}
    params = {name: _facts(good.values(name), good.version(name)) for name in good.params()}
    facts = {
        "url": good.url,
        "job": str(good.manifest.get("job", "")),
        "step": good.step,
        "groups": {group: facts["step"] for group, facts in good.groups.items()},
        "files": [file["file"] for key in ("parts", "states") for file in good.manifest.get(key, ())],
    }
    return {**facts, "checkpoints": states, "params": params, "problems": problems + _not_finite(good.url, params)}


def _describe_values(url: str) -> dict[str, Any]:
    """Describe a SINGA file or workspace, which has no checksums."""
    from singa_dask.runtime.checkpoints.lookup import find_values, load_values
    from singa_dask.runtime.checkpoints.singa_checkpoint import parse

    place = find_values(url)
    params = {name: _facts(stored.values, stored.version) for name, stored in load_values(place).items()}
    singa = parse(place)
    facts = {"url": place, "step": singa[1] if singa else None}
    return {**facts, "checkpoints": {}, "params": params, "problems": _not_finite(place, params)}


def _facts(values: np.ndarray, version: int) -> dict[str, Any]:
    """Describe a param: shape, dtype, version, and statistics of its finite values."""
    import numpy as np

    finite = values[np.isfinite(values)].astype(np.float64)
    facts: dict[str, Any] = {"shape": list(values.shape), "dtype": str(values.dtype), "version": version}
    facts["norm"] = float(np.linalg.norm(finite))
    facts["min"], facts["max"] = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return {**facts, "not_finite": int(values.size - finite.size)}


def _not_finite(url: str, params: Mapping[str, Mapping[str, Any]]) -> list[str]:
    wrong = {name: each["not_finite"] for name, each in params.items() if each["not_finite"]}
    return [f"{url}: param {name!r}: {plural(n, 'value is', 'values are')} not finite." for name, n in wrong.items()]


def _checkpoint_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    states = facts["checkpoints"]
    for url, state in sorted(states.items()) if len(states) > 1 else ():
        yield f"{url}: {state}"
    if not facts["params"]:
        yield f"{facts['url']}: no checkpoint here is usable"
        return
    step = "" if facts["step"] is None else f": step {facts['step']}"
    job = f" of {facts['job']}" if facts.get("job") else ""
    checked = ", all checksums match" if states else ", without checksums"
    yield f"{facts['url']}{step}{job}{checked}"
    if len(facts.get("groups", ())) > 1:
        yield f"steps of worker groups: {', '.join(f'{group}: {step}' for group, step in facts['groups'].items())}"
    rows = [("param", "shape", "dtype", "version", "norm", "min", "max")]
    for name, each in facts["params"].items():
        numbers = (f"{each[key]:.5g}" for key in ("norm", "min", "max"))
        rows.append((name, _shape(each["shape"]), each["dtype"], str(each["version"]), *numbers))
    yield from align(rows, range(3, 7))
    n_values = sum(math.prod(each["shape"]) for each in facts["params"].values())
    yield f"{plural(len(facts['params']), 'param')}, {n_values:,} values"


def _shape(shape: list[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


# -- two checkpoints -------------------------------------------------------------------------------------------------


def _compare(url: str, other: str) -> dict[str, Any]:
    """Compare two checkpoints: largest absolute difference of each param, and params that do not match."""
    import numpy as np

    from singa_dask.runtime.checkpoints.lookup import find_values, load_values

    places = [find_values(each) for each in (url, other)]
    first, second = (load_values(place) for place in places)
    params: dict[str, dict[str, Any]] = {}
    problems = []
    for name in dict.fromkeys([*first, *second]):
        if name not in first or name not in second:
            problems.append(f"{places[name in first]}: no param {name!r}.")
            continue
        ours, theirs = first[name].values, second[name].values
        if ours.shape != theirs.shape:
            problems.append(f"{places[1]}: param {name!r} has shape {theirs.shape}. Expected {ours.shape}.")
            continue
        difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        largest = float(difference.max()) if difference.size else 0.0
        params[name] = {"max_difference": largest, "max": float(np.abs(ours).max()) if ours.size else 0.0}
    return {"urls": places, "params": params, "problems": problems}


def _difference_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"{facts['urls'][0]}\n{facts['urls'][1]}"
    rows = [("param", "largest difference", "largest value")]
    rows += [(name, f"{each['max_difference']:.5g}", f"{each['max']:.5g}") for name, each in facts["params"].items()]
    yield from align(rows, (1, 2))
    largest = max((each["max_difference"] for each in facts["params"].values()), default=0.0)
    yield "all values are equal" if largest == 0 else f"largest difference: {largest:.5g}"
