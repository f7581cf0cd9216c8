"""g++ in place of NVRTC: source text to a loaded library, kept from run to run."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import getpass
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
OPTIONS = (
    *("-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-ffp-contract=off", "-fno-strict-aliasing"),
    *("-U_FORTIFY_SOURCE", "-fno-stack-protector", "-fno-threadsafe-statics"),
)
# A pipe between compiler and assembler is quicker than a file. Kernels call nothing of libstdc++: it is not searched.
LINK = ("-pipe", "-nodefaultlibs", "-lm", "-lc", "-lgcc")
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


@functools.cache
def _functions() -> str:
    """Return the path of what each kernel includes, which is compiled once: g++ takes the ``.gch`` beside a header."""
    text = header("_simulated.h") + header("_functions.h")
    target = cache() / f"{_key(text)}.h"
    compiled = target.with_suffix(".h.gch")
    if not compiled.exists():
        with _replacing(target) as made:
            made.write_text(text)
        _write(compiled, (*(o for o in OPTIONS if o != "-shared"), "-x", "c++-header", str(target)))
    return str(target)


def library(source: str, name: str, options: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library of a source text. Several processes may ask for the same at once."""
    _engine()
    return _load(source, name, options, before=("-include", _functions()))


def _load(
    source: str,
    name: str,
    options: tuple[str, ...],
    mode: int = ctypes.DEFAULT_MODE,
    before: tuple[str, ...] = (),
) -> ctypes.CDLL:
    flags = tuple(option for option in options if option.startswith(("-D", "-U")))
    target = cache() / f"{_key(source, *before, *flags)}.so"
    if not target.exists():
        _build(source, name, (*flags, *before), target)
    return ctypes.CDLL(str(target), mode)


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join((*parts, *OPTIONS, *LINK)).encode()).hexdigest()[:32]


def _build(source: str, name: str, flags: tuple[str, ...], target: Path) -> None:
    reading = (*flags, "-x", "c++", "-", *LINK)
    if _write(target, (*OPTIONS, *reading), source):
        return
    command = [_compiler(), *(o for o in OPTIONS if o != "-w"), *WARNINGS, *reading, "-o", os.devnull]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    raise CompileException(f"{name}: {done.stderr}", source, name, flags)


def _write(target: Path, options: tuple[str, ...], text: str = "") -> bool:
    """Let g++ make a file, of what it is given on its input; return whether it did."""
    with _replacing(target) as made:
        command = [_compiler(), *options, "-o", str(made)]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode:
            made.unlink()
    return done.returncode == 0


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Give a file to write; it takes the name of the target when it is there at the end."""
    handle, name = tempfile.mkstemp(suffix=target.suffix, dir=target.parent)
    os.close(handle)
    made = Path(name)
    try:
        yield made
        if made.exists():
            made.replace(target)
    finally:
        made.unlink(missing_ok=True)
