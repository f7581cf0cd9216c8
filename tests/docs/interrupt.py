"""Run a training command, send it SIGINT once it has shown metrics, and check that it ends as one that was stopped.

``python interrupt.py RUN_DIR COMMAND...``
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

STOPPED = 130
WITHIN_S = 120

metrics = Path(sys.argv[1]) / "metrics.jsonl"
# A shell that is not a person's own has its background processes ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
process = subprocess.Popen(sys.argv[2:])
nobody = threading.Event()
for _ in range(20 * WITHIN_S):
    if process.poll() is not None or (metrics.exists() and '"metrics"' in metrics.read_text()):
        break
    nobody.wait(0.05)
process.send_signal(signal.SIGINT)
if process.wait(WITHIN_S) != STOPPED:
    sys.exit(f"exit code {process.returncode}, not {STOPPED}")
