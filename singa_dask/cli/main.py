"""The click tree. It imports a command's module on first use, because ``dask`` loads this file on every call.

Errors of all commands become plain messages and exit codes here.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

import click

from singa_dask import modules
from singa_dask.cli.printing import echo
from singa_dask.errors import A_BUG, ConfigError, SingaError, is_out_of_memory, text_of
from singa_dask.paths import expand
from singa_dask.version import __version__

# click does not rewrap the paragraph after \b
HELP = """SINGA on Dask: train nets of layers by groups of workers and parameter servers.

\b
Shell completion: eval "$(_SINGA_DASK_COMPLETE=bash_source singa-dask)"
(or zsh_source, fish_source).
"""
VERBS = {
    "attach": "Follow a job on a cluster, as run shows it.",
    "check": "Examine a layer, updater or store of your own.",
    "checkpoint": "Write a checkpoint of a job on a cluster now.",
    "ckpt": "List and check the params of a checkpoint, or compare two.",
    "compare": "Run one job under several topologies, and report.",
    "convert": "Make a store of records.",
    "data": "Look at records, and measure how fast they are read.",
    "diff": "Show how the jobs and the results of two runs differ.",
    "export": "Write a trained net as a file for other programs.",
    "extract": "Write the outputs of layers of a trained net for records.",
    "find-rate": "Propose a learning rate, from a short run in which it rises.",
    "graph": "Draw the net of a job file: layers, shapes, parts, bridges.",
    "import": "Make a checkpoint of weights from another program.",
    "init": "Write a job file for data.",
    "kill": "End a job on a cluster at once.",
    "layers": "List the layers and other parts of jobs, or describe one.",
    "list": "List the jobs on a cluster, or in a directory of runs.",
    "logs": "Print the log of a job on a cluster.",
    "plan": "Find the fastest topology of a job before anything runs.",
    "plot": "Draw the curves of runs: metrics, learning rate, speed, waits.",
    "predict": "Predict the classes, labels or targets of new records.",
    "run": "Train a net as a job file says.",
    "sample": "Write text with a trained net, a character at a time.",
    "schema": "Print the JSON schema of a job file.",
    "serve": "Answer requests for predictions over HTTP.",
    "show": "Describe a run: job, result, metrics, time, checkpoints.",
    "stack": "Print what the units of a job are doing: their Python stacks.",
    "stop": "Stop a job on a cluster with a checkpoint.",
    "test": "Measure the performance of a checkpoint.",
    "validate": "Check a job file and show what it makes; start nothing.",
    "view": "Describe a job on a cluster: units, hosts, steps, restarts.",
}
"""The first line of each command's help, shown without importing it."""
MODULES = {
    **dict.fromkeys(("attach", "checkpoint", "kill", "list", "logs", "stack", "stop", "view"), "job_verbs"),
    **dict.fromkeys(("check", "layers", "schema"), "parts"),
    **dict.fromkeys(("ckpt", "diff", "plot", "show"), "runs"),
    **dict.fromkeys(("extract", "predict", "sample", "test"), "inference"),
    "find-rate": "run",
    **dict.fromkeys(("graph", "validate"), "nets"),
    "import": "export",
    "init": "init.command",
}
"""Modules of commands that do not have the command's name."""

HABITS = {
    "attach": "follow watch",
    "checkpoint": "save",
    "find-rate": "lr-find",
    "kill": "terminate",
    "list": "jobs ls ps queue",
    "logs": "log tail",
    "plot": "curves",
    "graph": "draw",
    "predict": "infer",
    "run": "fit start train",
    "run --resume": "resume",
    "sample": "generate",
    "serve": "deploy",
    "show": "describe info",
    "stack": "py-spy",
    "stop": "cancel",
    "test": "eval evaluate",
    "view": "status",
}
"""Our commands -> their names in other programs."""
STOPPED = "SIGINT: stopped."
PLACES = {
    "CHECKPOINT",
    "DATA",
    "DST",
    "FILE",
    "JOB.yaml",
    "MAP.yaml",
    "RUN",
    "RUN|JOB.yaml",
    "SRC",
    "TRACE",
    "URL",
    "WEIGHTS",
}
"""Metavars of arguments and options that are paths or URLs, without brackets and dots."""


class Verbs(click.Group):
    """A click group whose commands are imported when they are first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command, and return the command."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"singa_dask.cli.{MODULES.get(cmd_name, cmd_name)}")
        commands = (each for each in vars(module).values() if isinstance(each, click.Command))
        return _with_places(next(command for command in commands if command.name == cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest one for an unknown name."""
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        ours = {theirs: verb for verb, habits in HABITS.items() for theirs in habits.split()}
        close = difflib.get_close_matches(name.lower(), [*VERBS, *ours], n=1)
        hint = f"Did you mean {ours.get(close[0], close[0])!r}? " if close else ""
        raise click.UsageError(f"No such command {name!r}. {hint}Known: {', '.join(VERBS)}.", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List all commands with their summaries."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; print its errors as plain messages and exit with their codes."""
        before = gc.get_threshold()
        gc.set_threshold(200_000)  # importing allocates many objects and frees few; see `job.collect_again`
        # otherwise the next file that we open would become stderr, and C libraries would write into it
        if sys.stderr is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            with _no_lost_ctrl_c():
                _check_directory()
                return super().invoke(ctx)
        except SingaError as error:
            echo(str(error), err=True)
            ctx.exit(error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            _interrupted(ctx)
        except Exception as error:
            if _comes_of_ctrl_c(error):
                _interrupted(ctx)
            if is_out_of_memory(error):
                echo(text_of(error), err=True)
                ctx.exit(1)
            if (blame := modules.blame(error)) is not None:
                echo(f"{blame.place}: {blame.text}\n{blame.traceback.rstrip()}", err=True)
                ctx.exit(1)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
                echo(f"cannot write: {error.strerror}.", err=True)
                ctx.exit(1)
            if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
                said = f"{error.encoding} of the standard output has no {error.object[error.start]!r}"
                echo(f"cannot write: {said}. Set PYTHONIOENCODING=utf-8.", err=True)
                ctx.exit(1)
            echo(traceback.format_exc(), err=True)
            echo(A_BUG, err=True)
            ctx.exit(1)
        finally:
            gc.set_threshold(*before)


def _check_directory() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ConfigError("the current directory was deleted. Change to another one.") from None


class PathParam(click.types.StringParamType):
    """A path or URL in which ``~`` and environment variables are expanded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path or URL, with ``~`` and environment variables expanded."""
        try:
            return expand(super().convert(value, param, ctx))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def _with_places(command: click.Command) -> click.Command:
    """Make a command, or all commands of a group, expand ``~`` and variables in path arguments."""
    for param in command.params:
        if param.type is click.STRING and param.make_metavar(click.Context(command)).strip("[].") in PLACES:
            param.type = PathParam()
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _with_places(inner)
    return command


@contextlib.contextmanager
def _no_lost_ctrl_c() -> Iterator[None]:
    """End the process at once if Ctrl-C comes during an import.

    While Python holds the import lock, a KeyboardInterrupt may be lost and leave the lock taken. The next thread that
    imports a module would then hang.
    """

    def on_ctrl_c(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                with contextlib.suppress(OSError):
                    os.write(2, STOPPED.encode() + b"\n")
                os._exit(128 + number)
            frame = frame.f_back
        raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupted(ctx: click.Context) -> NoReturn:
    echo(STOPPED, err=True)
    ctx.exit(128 + signal.SIGINT)


def _comes_of_ctrl_c(error: BaseException | None) -> bool:
    """Return whether a KeyboardInterrupt caused an error that a module raised during its import."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


@click.group(name="singa", cls=Verbs, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="singa-dask")
def main() -> None:
    """Run the command line."""
