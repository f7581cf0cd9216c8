"""``profile``: record where the time of a few steps goes."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from singa_dask.conf.model import Conf, Count, Size

__all__ = ["Profile", "ProfileConf"]


class ProfileConf(Conf):
    """``profile``: the steps that are recorded."""

    first_step: Count = 20
    """Steps to leave out, counted from where the run begins or goes on. A run that is too short records its last."""
    steps: Size = 5
    """Steps to record."""

    def window(self, first: int, train_steps: int) -> range:
        """Return the steps to record of a worker that begins at step ``first``."""
        start = min(first + self.first_step, max(train_steps - self.steps, first))
        return range(start, min(start + self.steps, train_steps))


class _OrBool:
    """Lets true stand for the default steps, and false for none."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_mapping, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "boolean"}, *handler(schema)["anyOf"]]}


def _as_mapping(value: object) -> object:
    return ({} if value else None) if isinstance(value, bool) else value


Profile: TypeAlias = Annotated[ProfileConf | None, _OrBool()]
