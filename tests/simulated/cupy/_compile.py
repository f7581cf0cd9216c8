"""g++ in place of NVRTC: source text to a loaded library, kept from run to run."""

from __future__ import annotations

import ctypes
import functools
import getpass
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
OPTIONS = (
    *("-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing"),
    *("-U_FORTIFY_SOURCE", "-fno-stack-protector"),
)
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused", "-Wno-unknown-pragmas")


class CompileException(Exception):
    """Source that g++ refuses, with what it said."""

    def __init__(self, msg: str, source: str, name: str, options: tuple[str, ...]) -> None:
        super().__init__(msg)
        self.source, self.name, self.options = source, name, options

    def get_message(self) -> str:
        return str(self.args[0])


@functools.cache
def header(name: str) -> str:
    return (HERE / name).read_text()


def cache() -> Path:
    """Return the folder of this user's compiled kernels."""
    folder = Path(tempfile.gettempdir()) / f"simulated-gpu-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@functools.cache
def _compiler() -> str:
    found = shutil.which("g++")
    if found is None:
        raise RuntimeError("the simulated GPU needs g++ to compile kernels, and there is none on the PATH")
    return found


@functools.cache
def _engine() -> ctypes.CDLL:
    """Load what runs kernels, for the libraries of kernels to find."""
    return _load(header("_simulated.h") + header("_engine.h"), "engine", (), ctypes.RTLD_GLOBAL)


def library(source: str, name: str, options: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library of a source text. Several processes may ask for the same at once."""
    _engine()
    return _load(header("_simulated.h") + header("_functions.h") + source, name, options)


def _load(source: str, name: str, options: tuple[str, ...], mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    flags = tuple(option for option in options if option.startswith(("-D", "-U")))
    key = hashlib.sha256("\0".join((source, *OPTIONS, *flags)).encode()).hexdigest()[:32]
    target = cache() / f"{key}.so"
    if not target.exists():
        _build(source, name, flags, target)
    return ctypes.CDLL(str(target), mode)


def _build(source: str, name: str, flags: tuple[str, ...], target: Path) -> None:
    handle, made = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        command = [_compiler(), *OPTIONS, *flags, "-x", "c++", "-", "-o", made]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
        if done.returncode:
            command = [_compiler(), *(o for o in OPTIONS if o != "-w"), *WARNINGS, *flags, "-x", "c++", "-", "-o", made]
            done = subprocess.run(command, input=source, capture_output=True, text=True)
            raise CompileException(f"{name}: {done.stderr}", source, name, flags)
        os.replace(made, target)
    finally:
        Path(made).unlink(missing_ok=True)
