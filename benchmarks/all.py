"""A short form of the benchmarks: what matters to users, in one run, compared with another checkout.

Each value is measured by a process of its own (`benchmarks.measured`), and two checkouts take turns in rounds. The
first round is not counted. Each measure has at least two more rounds; then the noisiest are repeated until time is up.
``python -m benchmarks.all [--minutes N] [--against DIR] [--out DIR] [--only NAME ...] [--share S]``
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.all_data import make
from benchmarks.measured import MEASURES

ROOT = Path(__file__).parents[1]
PACKAGES = ("numpy", "dask", "distributed", "pyarrow")
TIMEOUT_S = 900
LEAST_ROUNDS, LEAST_FOR_VERDICT = 2, 4
LEAST_CHANGE = 0.03
# half of the notch of a box plot, in quartile ranges: a median is within it in about 95 % of repetitions
NOTCH = 1.57


class Side:
    """A checkout that is measured.

    Parameters
    ----------
    checkout : Path
    folder : Path
        With the data sets; models of this checkout are written there.
    number : int
    """

    def __init__(self, checkout: Path, folder: Path, number: int) -> None:
        self.checkout, self.folder = checkout, folder
        # both compile modules there, so that a checkout that cannot be written to is not slower
        self.environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.environment |= {"PYTHONPATH": str(checkout), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        self.environment |= {"BENCHMARK_MODELS": f"models{number}", "TMPDIR": str(folder)}
        self.about = self._about()

    def call(self, name: str, share: float) -> Any:
        """Return what `benchmarks.measured` prints; raise a RuntimeError with its last line if it fails."""
        command = [sys.executable, "-m", "benchmarks.measured", name, str(share)]
        with subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                said, errors = process.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"no result after {TIMEOUT_S} s") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise RuntimeError((errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1])
        return json.loads(said.splitlines()[-1])

    def _about(self) -> dict[str, Any]:
        try:
            found = self.call("about", 1)
        except RuntimeError as error:
            sys.exit(f"{self.checkout}: the package cannot be imported: {error}")
        if not Path(found["file"]).resolve().is_relative_to(self.checkout):
            sys.exit(f"{self.checkout}: Python imports {found['file']} instead of this checkout.")
        return {"version": found["version"], "commit": commit(self.checkout)}


def commit(checkout: Path) -> str | None:
    """Return the commit of a checkout, with a plus if files differ; None for a copy without git."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    # a copy may lie within another repository
    top = git("rev-parse", "--show-toplevel")
    if not top or Path(top) != checkout:
        return None
    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def machine() -> dict[str, Any]:
    """Return model and cores of the CPU, and versions."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = models[0].partition(":")[2].strip() if models else platform.processor()
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), **versions}


class Results:
    """The values of all rounds, in a JSON file that is written after each round.

    Parameters
    ----------
    path : Path
    sides : sequence of Side
    share : float
        Factor for numbers of records and steps.
    """

    def __init__(self, path: Path, sides: Sequence[Side], share: float) -> None:
        self.path, self.sides, self.share = path, sides, share
        self.seconds: dict[str, float] = {}
        self.found: dict[str, dict[str, Any]] = {}
        self.document = {**machine(), "share": share, "measures": self.found}
        self.document |= {name: side.about for name, side in zip(("this", "other"), sides, strict=False)}

    def round(self, name: str, counted: bool = True) -> None:
        """Measure once on each checkout that is not known to lack it."""
        measure, began = MEASURES[name], time.monotonic()
        one = self.found.setdefault(name, {"title": measure.title, "unit": measure.unit, "rounds": [], "missing": {}})
        values: dict[str, Any] = {}
        for key, side in list(zip(("this", "other"), self.sides, strict=False))[:: 1 if len(one["rounds"]) % 2 else -1]:
            if key in one["missing"]:
                continue
            before = os.getloadavg()[0]
            try:
                values[key] = {"value": side.call(name, self.share), "load": [before, os.getloadavg()[0]]}
            except RuntimeError as error:
                one["missing"][key] = str(error)
        self.seconds[name] = time.monotonic() - began
        if values and counted:
            one["rounds"].append(values)
        self.write()

    def write(self) -> None:
        """Replace the JSON file."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.document, indent=1) + "\n")
        part.replace(self.path)

    def column(self, name: str, key: str) -> list[float]:
        """Return the values of a checkout, of rounds that have them."""
        return [values[key]["value"] for values in self.found[name]["rounds"] if key in values]

    def ratios(self, name: str) -> list[float]:
        """Return logarithms of this checkout's values relative to the other's of the same round."""
        pairs = [values for values in self.found[name]["rounds"] if len(values) == 2]
        return [math.log(values["this"]["value"] / values["other"]["value"]) for values in pairs]

    def noise(self, name: str) -> float:
        """Return the notch of what is compared: of ratios, or else of values."""
        values = self.ratios(name) or [math.log(value) for value in self.column(name, "this")]
        return notch(values)[1] if len(values) > 1 else 0.0

    def line(self, name: str) -> str:
        """Return the line of the table."""
        one, ours = self.found[name], self.column(name, "this")
        missing = "; ".join(f"missing in {key}: {why}" for key, why in one["missing"].items())
        if not ours:
            return f"{name:16} {one['title']:32} {missing or 'not measured'}"
        middle = statistics.median(ours)
        quartiles = statistics.quantiles(ours, n=4) if len(ours) > 1 else [middle] * 3
        spread = (quartiles[2] - quartiles[0]) / middle
        cells = f"{name:16} {one['title']:32} {shown(middle, one['unit']):>9} {spread:6.0%} {len(ours):6}"
        ratios = self.ratios(name)
        return (
            f"{cells} {math.exp(statistics.median(ratios)):6.2f}  {verdict(ratios)}"
            if ratios
            else f"{cells}  {missing}"
        )


def notch(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and half of its notch."""
    lower, middle, upper = statistics.quantiles(values, n=4)
    return middle, NOTCH * (upper - lower) / math.sqrt(len(values))


def verdict(ratios: Sequence[float]) -> str:
    """Return slower or faster if the median ratio differs from 1 by more than its notch, and by more than 3 %."""
    if len(ratios) < LEAST_FOR_VERDICT:
        return ""
    middle, half = notch(ratios)
    return "" if abs(middle) <= max(half, math.log1p(LEAST_CHANGE)) else "slower" if middle > 0 else "faster"


def shown(value: float, unit: str) -> str:
    """Return a value with a unit that suits it."""
    if unit == "B":
        return f"{value / 1e6:.1f} MB"
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def measure_all(results: Results, names: Sequence[str], ends: float) -> None:
    """Measure each name, then those that vary most, until the time is over."""
    for number in range(LEAST_ROUNDS + 1):
        for name in names:
            results.round(name, counted=number > 0)
            print(f"round {number} of {name}: {results.seconds[name]:.1f} s", file=sys.stderr, flush=True)
        least = LEAST_ROUNDS * sum(results.seconds.values())
        if not number and time.monotonic() + least > ends:
            print(f"two rounds take about {least / 60:.1f} minutes, which is more than is left.", file=sys.stderr)
    while True:
        left = ends - time.monotonic()
        fitting = [name for name in names if results.seconds[name] < left and results.found[name]["rounds"]]
        if not fitting:
            return
        results.round(max(fitting, key=results.noise))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"), metavar="DIR", help="folder for the JSON")
    parser.add_argument("--only", nargs="+", default=list(MEASURES), choices=list(MEASURES), metavar="NAME")
    parser.add_argument("--share", type=float, default=1.0, help="factor for numbers of records and steps")
    given = parser.parse_args(arguments)
    ends = time.monotonic() + 60 * given.minutes
    checkouts = [ROOT, *([given.against.resolve()] if given.against else [])]
    if not (checkouts[-1] / "singa_dask/__init__.py").is_file():
        parser.error(
            f"--against {given.against}: not a checkout of singa-dask: singa_dask/__init__.py is missing. "
            "Pass the top directory of a checkout."
        )
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"all-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.json"
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as temporary:
        folder = Path(temporary)
        for name in ("benchmarks", "configs", "data"):
            (folder / name).symlink_to(ROOT / name)
        make(folder, given.share)
        sides = [Side(checkout, folder, number) for number, checkout in enumerate(checkouts)]
        results = Results(path, sides, given.share)
        stopped = False
        try:
            measure_all(results, given.only, ends)
        except KeyboardInterrupt:
            stopped = True
    print(f"{'':49} {'median':>9} {'spread':>6} {'rounds':>6} {'ratio':>6}")
    for name in results.found:
        print(results.line(name))
    print(path)
    if stopped:
        sys.exit(130)
    if failed := [name for name, one in results.found.items() if "this" in one["missing"]]:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
