"""Read a run directory: one row a test, then how the run ended.

Run it as ``python examples/read_run.py runs/<run>``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(run: Path) -> None:
    """Print the tests of a run, and its end."""
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    print("step   loss    accuracy")
    for event in events:
        if event.get("phase") == "test":
            print(f"{event['step']:<6} {event['loss']:.4f}  {event['accuracy']:.4f}")
    summary = json.loads((run / "summary.json").read_text())
    print(f"{summary['state']}: {summary['steps']} steps in {summary['seconds']:.1f} s, last test {summary['test']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
