"""WarmProcess: a process that judges mutations one after another; where one of them ends it, a fresh one goes on.

Run as a program, this is that process: it reads lines of "seed subject", and prints the outcome of each as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.judge import Judge

__all__ = ["WarmProcess"]

ROOT = Path(__file__).parents[2]
# address space that a mutation may use beyond what the process had at first; what numpy does not allocate counts, too
ROOM_BYTES = 1 << 30
# processor time of a process, which judges some thousands of mutations; one that hangs in a loop is ended by it
CPU_S = 240


class WarmProcess:
    """Judges mutations in another process; use it in a ``with`` statement."""

    def __init__(self) -> None:
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def outcome(self, name: str, seed: int) -> str:
        """Return what `Judge.outcome` says, or which signal ended the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{seed} {name}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if line:
            return str(json.loads(line))
        code = self._process.wait()
        self._process = self._start()
        return f"the process ended with {code}"

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()


def _virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    judges: dict[str, Judge] = {}
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            seed, _, name = line.strip().partition(" ")
            if name not in judges:
                judges[name] = Judge(name, Path(folder) / name.replace(" ", "-"))
                # opened once without limits, so that what it needs is loaded
                assert judges[name].expected
                limit = _virtual_bytes() + ROOM_BYTES
                resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            print(json.dumps(judges[name].outcome(int(seed))), flush=True)


if __name__ == "__main__":
    main()
