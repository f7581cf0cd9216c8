"""``ckpt``: what a checkpoint holds, whether it is whole, and how two differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from singa_dask import observe
from singa_dask.cli.output import columns, echo
from singa_dask.errors import CheckpointError, DataError

if TYPE_CHECKING:
    import numpy as np

    from singa_dask.runtime.checkpoints.checkpoint import Checkpoint


@click.command()
@click.argument("url", metavar="CHECKPOINT")
@click.argument("other", metavar="[CHECKPOINT]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.pass_context
def ckpt(ctx: click.Context, url: str, other: str | None, as_json: bool) -> None:
    """List and check the params of a checkpoint, or compare two.

    CHECKPOINT is a run directory, a step of it, or a file or workspace of SINGA's. Of a run all checkpoints are
    checked, and the params of the newest good one are listed. With a second checkpoint, the largest absolute difference
    of each param.

    Exit codes: 0 all is well, 1 something is damaged, missing or not finite.
    """
    facts = _compare(url, other) if other else _describe(url)
    if as_json:
        echo(observe.to_json(facts, indent=2))
    else:
        echo("\n".join(_difference_lines(facts) if other else _lines(facts)))
        for problem in facts["problems"]:
            echo(problem, err=True)
    ctx.exit(1 if facts["problems"] else 0)


# -- one checkpoint --------------------------------------------------------------------------------------------------


def _describe(url: str) -> dict[str, Any]:
    """Return what is in the newest good checkpoint at a URL, and what is wrong with it and the others."""
    from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
    from singa_dask.runtime.checkpoints.lookup import find_steps

    steps = find_steps(url)
    if not steps and not _is_own(url):
        return _describe_values(url)
    problems: list[str] = []
    good: Checkpoint | None = None
    states = {}
    for step_url in [steps[step] for step in sorted(steps, reverse=True)] or [url]:
        try:
            found = Checkpoint(step_url)
            found.verify()
        except (CheckpointError, DataError) as error:
            problems.append(str(error))
            states[step_url] = "damaged"
            continue
        states[step_url] = "good"
        good = good or found
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


def _is_own(url: str) -> bool:
    """Return whether a URL is a step, complete or not."""
    from singa_dask.data import fs

    return fs.exists(fs.join(url, "manifest.json"))


def _describe_values(url: str) -> dict[str, Any]:
    """Return what is in a file or workspace of SINGA's, which has no checksums."""
    from singa_dask.runtime.checkpoints.lookup import find_values, load_values
    from singa_dask.runtime.checkpoints.singa_checkpoint import parse

    place = find_values(url)
    params = {name: _facts(stored.values, stored.version) for name, stored in load_values(place).items()}
    singa = parse(place)
    facts = {"url": place, "step": singa[1] if singa else None}
    return {**facts, "checkpoints": {}, "params": params, "problems": _not_finite(place, params)}


def _facts(values: np.ndarray, version: int) -> dict[str, Any]:
    """Return shape, dtype, version, and statistics of the finite values of a param."""
    import numpy as np

    finite = values[np.isfinite(values)].astype(np.float64)
    facts: dict[str, Any] = {"shape": list(values.shape), "dtype": str(values.dtype), "version": version}
    facts["norm"] = float(np.linalg.norm(finite))
    facts["min"], facts["max"] = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return {**facts, "not_finite": int(values.size - finite.size)}


def _not_finite(url: str, params: Mapping[str, Mapping[str, Any]]) -> list[str]:
    wrong = {name: each["not_finite"] for name, each in params.items() if each["not_finite"]}
    return [f"{url}: param {name!r}: {n} values are not finite." for name, n in wrong.items()]


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    states = facts["checkpoints"]
    for url, state in sorted(states.items()) if len(states) > 1 else ():
        yield f"{url}: {state}"
    if not facts["params"]:
        yield f"{facts['url']}: no checkpoint here is good"
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
    yield from columns(rows, range(3, 7))
    n_values = sum(math.prod(each["shape"]) for each in facts["params"].values())
    yield f"{len(facts['params'])} params, {n_values:,} values"


def _shape(shape: list[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


# -- two checkpoints -------------------------------------------------------------------------------------------------


def _compare(url: str, other: str) -> dict[str, Any]:
    """Return the largest absolute difference of each param of two checkpoints, and their params that do not match."""
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
    yield from columns(rows, (1, 2))
    largest = max((each["max_difference"] for each in facts["params"].values()), default=0.0)
    yield "all values are equal" if largest == 0 else f"largest difference: {largest:.5g}"
