"""StoredRecords: records at a URL that a net reads instead of the job's own records."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError, DataError, Problem, SingaError
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import LAYERS


class Door(NamedTuple):
    """Words for advice in errors: how the caller, a command or a function, passes an option.

    An advice consists of ``before``, the ``option`` with one of its ``values``, and ``behind``.
    """

    before: str
    option: str
    values: Mapping[str, str]
    behind: str = ""


# keys of store_conf without an option of their own; commands set them with --set
SETTABLE = ("charset", "separator", "quotes", "na_values", "unlabelled", "numbers", "dates")
WORDS = {"missing": "mean or a number", "unknown": "ignore"}
COMMAND = Door("pass ", "--{} {}", WORDS)
SERVER = Door("start serve with ", "--{} {}", WORDS)
PYTHON = Door(
    "pass ", "{}={}", {"missing": "'mean' or a number", "unknown": "'ignore'"}, " to load_model or sd.predict"
)


def advised(error: DataError, door: Door, can_fill: bool = True) -> DataError:
    """Return an error about a gap or an unknown category that recommends the caller's options.

    Pass ``can_fill=False`` for a net that does not read a table. The options do not apply to such a net.
    """
    remedy = error.remedy
    if remedy is not None and remedy.key == "unlabelled" and door is PYTHON:
        return error.saying("Leave such records out.")
    if remedy is None or remedy.key not in ("missing", "unknown", "absent"):
        return error
    # advise only allowed values; e.g. a category, a text or a vector cannot be filled with the mean
    keys = [key for key, value in (("missing", "mean"), ("unknown", "ignore")) if value in remedy.values and can_fill]
    helps = " and ".join(door.option.format(key, door.values[key]) for key in keys)
    if remedy.key == "absent":
        return error.saying(f"{door.before.capitalize()}{helps}{door.behind} to fill in the values.") if keys else error
    return error.saying(f"Leave the record out{f', or {door.before}{helps}{door.behind}' if keys else ''}.")


def sharing_layers(job: JobConf, names: Collection[str]) -> list[str]:
    """Return the names of all layers that read the same records as the layers in ``names``.

    A name stands for a layer in each net of the job. In a net, layers that read the same store have the same
    ``store_conf``.
    """
    readers = [each for each in job.neuralnet.layer if issubclass(LAYERS.find(each.type), StoreInput)]
    path_of = [(each.name, each.block(StoreConf).path) for each in readers]
    found = list(names)
    while True:
        paths = {path for name, path in path_of if name in found}
        more = dict.fromkeys(name for name, path in path_of if path in paths)
        if len(more) <= len(found):
            return [*more]
        found = [*more]


def with_options(error: DataError, layers: Sequence[str]) -> DataError:
    """Return an error that advises a ``--set`` option for each layer, not a key of ``store_conf``."""
    remedy = error.remedy
    if remedy is None or remedy.key not in SETTABLE or not remedy.values:
        return error
    words, value = f"[{', '.join(remedy.values)}]", remedy.values[0]
    text = value if re.fullmatch(r"[\w-]+", value) else json.dumps(value)
    if remedy.key in ("numbers", "dates"):
        text = value
    if remedy.key == "na_values":
        value, text = words, json.dumps(list(remedy.values), ensure_ascii=False)
    options = [f"--set {shlex.quote(f'neuralnet.layer[{name}].store_conf.{remedy.key}={text}')}" for name in layers]
    key = re.compile(rf"Set {remedy.key}: ({re.escape(value)}|{re.escape(repr(value))})")
    return error.saying(key.sub(lambda _: f"Pass {' '.join(options)}", remedy.text))


class StoredRecords(NamedTuple):
    """Records that a net reads instead of the job's own records; see `inference_job.with_data`.

    ``named`` is the name of the records in error messages of a command. The default is their URL.
    """

    url: str
    backend: str | None = None
    outputs: bool = False
    named: str = ""
    forecasts: tuple[Any, ...] | None = None
    reading: Mapping[str, Any] = MappingProxyType({})

    def renamed(
        self, error: ConfigError | DataError, layers: Sequence[int], readers: Sequence[str] = ()
    ) -> SingaError | None:
        """Return an error with the name of the records; None if the error is about the job or a checkpoint.

        ``layers`` are the indices of the layers that read the records. ``readers`` are their names, from
        `sharing_layers`.
        """
        if isinstance(error, DataError):
            if fs.absolute(self.url) not in str(error):
                return None
            return DataError(self._named(self._advised(error, readers)))
        places = [("neuralnet", "layer", index, "store_conf") for index in layers]
        if not error.problems or any(problem.path[:4] not in places for problem in error.problems):
            return None
        errors = [DataError(problem.message, remedy=problem.remedy) for problem in error.problems]
        # layers that read the same records have the same problem
        messages = dict.fromkeys(self._named(self._advised(each, readers)) for each in errors)
        return ConfigError([Problem((), message) for message in messages])

    def _advised(self, error: DataError, readers: Sequence[str]) -> str:
        """Return the message of an error, with advice on options of the caller."""
        if self.named:
            return str(with_options(advised(error, COMMAND), readers))
        return str(advised(error, PYTHON))

    def _named(self, message: str) -> str:
        named, rest = self.named or self.url, message.removeprefix(fs.absolute(self.url))
        # messages about text files continue with a place, such as ", line 3: "
        return f"{named}{rest}" if rest != message and rest[:1] in ":," else f"{named}: {message}"
