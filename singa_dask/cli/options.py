"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

CPU = "--cpu"
"""Placeholder in the list of ``--set`` values. It stands for the changes that ``--cpu`` makes."""
AUTO = "auto"
"""Value of ``run --cluster`` that plans the cluster block."""
MEASURING = "measuring what the job costs on this machine, and simulating it ..."
"""Message before a plan, which may take a minute."""
LATEST = "latest"
"""Value of ``--resume`` without an argument."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print the summary as the last line of stdout.")
quiet_option = click.option("--quiet", is_flag=True, help="Print nothing but errors.")
cpu_option = click.option("--cpu", is_flag=True, help="Compute on the CPU even if the job says gpu or cuDNN.")
set_option = click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Change a job's value. Repeatable.")
net_option = click.option("--job", "job_file", metavar="JOB.yaml", help="Use the net of this job file, not the run's.")


Command = Callable[..., Any]


def with_options(command: Command, *decorators: Callable[[Command], Command]) -> Command:
    """Apply the decorators that add options to a command; ``--help`` lists the last one first."""
    return functools.reduce(lambda decorated, decorate: decorate(decorated), decorators, command)


def job_options(command: Command, metavar: str = "JOB.yaml") -> Command:
    """Add the job file, the options that change it, and ``--strict``."""

    @functools.wraps(command)
    def with_cpu(*, sets: tuple[str, ...], cpu: bool, **others: Any) -> Any:
        return command(sets=(*sets, CPU) if cpu else sets, **others)

    return with_options(
        with_cpu,
        cpu_option,
        click.option("--strict", is_flag=True, help="Treat warnings on the job file as errors."),
        click.option(
            "--cluster",
            "cluster_file",
            metavar="FILE",
            help="Use the cluster block of this file, or a built-in one: allreduce, downpour, hogwild, hybrid, "
            "sandblaster, single; allreduce:3 and hogwild:3 for 3 workers. For run also auto: the fastest by plan.",
        ),
        click.option(
            "--set",
            "sets",
            metavar="KEY=VALUE",
            multiple=True,
            help="Change a value, e.g. updater.learning_rate.base_lr=0.1 or "
            "neuralnet.layer[fc1].innerproduct_conf.num_output=64. Repeatable.",
        ),
        click.argument("job_file", metavar=metavar),
    )


def run_options(command: Command) -> Command:
    """Add a run or a job file, the options that change the job, ``--init-from`` and ``--strict``.

    The command passes the run or job file and the values of ``--init-from`` to `job.of_run`.
    """
    return job_options(init_from_option("Use")(command), "RUN|JOB.yaml")


def init_from_option(use: str) -> Callable[[Command], Command]:
    """Add ``--init-from``. Its help begins with the text ``use``."""
    return click.option(
        "--init-from",
        metavar="URL",
        multiple=True,
        help=f"{use} the values of this checkpoint, by name of param, instead of the job's checkpoint_path: a run "
        "directory, a step of it, or a SINGA file or workspace. Repeatable; later ones win.",
    )


def scheduler_options(use: str) -> Callable[[Command], Command]:
    """Add ``--scheduler``, ``--scheduler-file`` and ``--wait``; ``use`` is the help of ``--scheduler``."""
    wait = click.option(
        "--wait",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=0.0,
        help="How long to wait for the scheduler, workers and free threads.",
    )
    return lambda command: cluster_options(use)(wait(command))


def cluster_options(use: str) -> Callable[[Command], Command]:
    """Add ``--scheduler`` and ``--scheduler-file``; ``use`` is the help of ``--scheduler``."""
    by_file = click.option("--scheduler-file", metavar="FILE", help="Scheduler file of the cluster.")
    by_address = click.option(
        "--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True, help=use
    )
    return lambda command: by_address(by_file(command))


def job_argument(command: Command) -> Command:
    """Add the argument that names a job on a cluster, and the options that name the cluster."""
    argument = click.argument("job", metavar="JOB")
    return argument(cluster_options("Address of the job's scheduler.")(command))
