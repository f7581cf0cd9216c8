"""The job file that ``init`` writes, its name, and the commands that use it."""

from __future__ import annotations

import itertools
import posixpath
import re
import shlex

from singa_dask import fs
from singa_dask.cli.init.record_job import record_job
from singa_dask.cli.init.text_job import text_job
from singa_dask.survey.results import RecordSurvey, TextSurvey
from singa_dask.survey.split import directory_of


def default_net(data: RecordSurvey | TextSurvey) -> str:
    """Return the default kind of net for data."""
    if isinstance(data, TextSurvey):
        return "char-rnn"
    return "word-rnn" if "texts" in data.reading else "convnet" if data.is_image else "mlp"


def commands(data: RecordSurvey | TextSurvey, net: str, out: str, on_cluster: bool = False) -> tuple[str, str]:
    """Return the commands to run a job, and to use the trained net.

    ``on_cluster`` tells whether the user has named a Dask cluster.
    """
    job, run = shlex.quote(out), shlex.quote(_new_run(data, net, out, on_cluster))
    if isinstance(data, TextSurvey):
        then = f"sample {run} --length 400"
    else:
        # a directory of tables has a format, but no suffix
        suffix = posixpath.basename(data.source).partition(".")[2] or (data.form if data.features else "")
        new = "PICTURE" if data.form == "image-folder" else f"NEW.{suffix}".rstrip(".")
        new = shlex.quote(data.unlabelled_url) if data.unlabelled_url else new
        keep = f" --keep {shlex.quote(data.key)}" if data.key and "," not in data.key else ""
        then = f"predict {run} --data {new}{keep}"
    return f"singa-dask run {job} --run-dir {run}", f"singa-dask {then}"


def _new_run(data: RecordSurvey | TextSurvey, net: str, out: str, on_cluster: bool) -> str:
    """Return a new run directory in ``runs`` beside the job file.

    On a cluster, the directory is beside remote data, because the Dask workers may share no disk with this host.
    """
    folder, source = posixpath.dirname(out), data.source
    if on_cluster and fs.local_path(source) is None and not source.startswith(("http://", "https://")):
        folder = directory_of(source)
    run = posixpath.join(folder, "runs", _name(data, net, out))
    others = (f"{run}-{i}" for i in itertools.count(2))
    return next(url for url in itertools.chain([run], others) if not fs.exists(fs.absolute(url)))


def _name(data: RecordSurvey | TextSurvey, net: str, out: str) -> str:
    """Return a name for a job: the name of its file, or for ``job.yaml`` one such as ``digits-mlp``."""
    own = re.sub(r"[^A-Za-z0-9_]+", "-", posixpath.splitext(posixpath.basename(out))[0]).strip("-")
    if own not in ("", "job"):
        return own
    parts = [re.sub(r"[^A-Za-z0-9]+", "-", part.split(".")[0]).strip("-") for part in data.source.split("/")]
    telling = [part for part in parts if part and not re.match(r"(?i)train|data(-batch)?$", part)]
    return f"{telling[-1].lower() if telling else 'my'}-{net}"


def write_job(data: RecordSurvey | TextSurvey, net: str, out: str, command: str, on_cluster: bool = False) -> str:
    """Return the text of a job file with comments.

    ``net`` is a value of ``--net`` that fits the data, ``out`` the job file, for the commands in it, and ``command``
    the command for its first line. See `commands` for ``on_cluster``.
    """
    name, (run, then) = _name(data, net, out), commands(data, net, out, on_cluster)
    next_steps = f"#\n#   {run}\n#   {then}\n\nname: {name}\n"
    body = text_job(data, next_steps) if isinstance(data, TextSurvey) else record_job(data, net, next_steps)
    return f"# Written by {command}\n#\n{body}"
