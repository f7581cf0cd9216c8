"""What the simulated GPU has, CuPy has too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

cupy = pytest.importorskip("cupy")
if not hasattr(cupy, "__simulated__"):
    pytest.skip("CuPy has a real GPU here", allow_module_level=True)

PUBLIC = """
import importlib, sys
for line in sys.stdin.read().splitlines():
    module, _, path = line.partition(" ")
    root, *names = [*module.split("."), *path.split(".")]
    found = importlib.import_module(root)
    for name in names:
        if isinstance(found, type(sys)) and not hasattr(found, name):
            importlib.import_module(f"{found.__name__}.{name}")
        found = getattr(found, name, None)
    if found is None:
        print(line)
"""


def public_names() -> list[str]:
    """Every public name of the simulator: those of its modules, and those of its classes."""
    names = []
    for module, held in sorted(sys.modules.items()):
        if not module.startswith(("cupy", "cupy_backends")) or "._" in module:
            continue
        for name in getattr(held, "__all__", []):
            names.append(f"{module} {name}")
            value = getattr(held, name)
            if isinstance(value, type):
                names += [f"{module} {name}.{part}" for part in vars(value) if not part.startswith("_")]
    return names


def test_every_public_name_is_in_the_real_cupy() -> None:
    """REAL_CUPY may name a Python that has CuPy, where this one does not."""
    from cupy_backends.cuda.libs import cublas

    assert cublas.__all__
    names = public_names()
    assert "cupy ndarray.reshape" in names
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    python = [os.environ.get("REAL_CUPY", sys.executable), "-c"]
    if subprocess.run([*python, "import cupy"], env=environment, capture_output=True, cwd="/").returncode:
        pytest.skip("no real CuPy is installed to compare with")
    done = subprocess.run([*python, PUBLIC], env=environment, input="\n".join(names), capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == ""
