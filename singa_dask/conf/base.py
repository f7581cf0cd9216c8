"""Conf: the base of all parts of a job's configuration, with its rules.

A model reports every mistake at once: those of its fields, unknown keys, and the rules that tie fields together. For
these a value that is wrong is the default of its field, so that they work beside a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from singa_dask.conf.findings import MISPLACED_KEY, PLAIN, Finding, explain, problem
from singa_dask.conf.kinds import T
from singa_dask.registry import Registry

C = TypeVar("C", bound="Conf")


def raw_value(data: object, key: str, kind: type[T], default: T) -> T:
    """Return a raw value, or a field of a model, for a rule; the default if it is missing or has another type."""
    value = data.get(key) if isinstance(data, Mapping) else getattr(data, key, None)
    return value if isinstance(value, kind) and not (kind is int and isinstance(value, bool)) else default


class Conf(BaseModel):
    """Base of all parts of a job: frozen, exact in its types, closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        # a job uses few of the models; the docstrings of fields are read where they are shown, see json_schema
        defer_build=True,
    )

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of keys, as SINGA's job files may use them."""
    block_key: ClassVar[str] = ""
    """Key of such a block in a job, ``innerproduct_conf`` of InnerProductConf unless the class says otherwise."""
    options_of: ClassVar[str] = ""
    """Kind of parts whose options stand among the keys of this model, as a key of ``registries``."""
    must_be_given: ClassVar[bool] = False
    """Whether a job has to give such a block although all of its keys have defaults."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "block_key" not in vars(cls):
            cls.block_key = f"{cls.__name__.removesuffix('Conf').lower()}_conf"

    @classmethod
    def arranged(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Return the raw values, each under the key that the model has it under."""
        return data

    def rules(self) -> Iterator[Finding]:
        """Yield (path, message) for what is wrong between the values; a subclass says what."""
        return iter(())

    @classmethod
    def raw_rules(cls, data: Mapping[str, Any], registries: Mapping[str, Registry[Any]]) -> Iterator[Finding]:
        """Yield (path, message) as `rules` does, of the raw values: for what can be told whatever else is wrong."""
        return iter(())

    @classmethod
    def _read_blocks(cls, data: dict[str, Any], context: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        """Replace the blocks in the raw values by validated ones, add defaults, and yield problems; see `PartConf`."""
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _report_all(cls: type[C], data: Any, handler: ModelWrapValidatorHandler[C], info: ValidationInfo) -> C:
        if not isinstance(data, Mapping):
            try:
                return handler(data)
            except ValidationError as error:
                raise ValidationError.from_exception_data(cls.__name__, [*explained(error, cls)]) from None
        given = cls.arranged({cls.aliases.get(key, key): value for key, value in data.items()})
        values = {**given}
        problems = [*cls._read_blocks(values, info.context or {})]
        findings = [*cls.raw_rules(given, (info.context or {}).get("registries") or {})]
        model: C | None
        try:
            model = handler(values)
        except ValidationError as error:
            problems = [*explained(error, cls), *problems]
            model = _mended(values, error, handler)
        findings += model.rules() if model else ()
        problems += [problem(PLAIN, message, path, given) for path, message in findings]
        if problems or model is None:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        model.model_fields_set.difference_update(values.keys() - given.keys())
        return model


def _mended(values: Mapping[str, Any], error: ValidationError, handler: ModelWrapValidatorHandler[C]) -> C | None:
    """Return the model with defaults in place of what is wrong; None if that is not possible."""
    wrong = {key for mistake in error.errors(include_url=False) for key in mistake["loc"][:1]}
    try:
        return handler({key: value for key, value in values.items() if key not in wrong})
    except ValidationError:
        return None


def explained(error: ValidationError, cls: type[Conf], above: tuple[str | int, ...] = ()) -> Iterator[InitErrorDetails]:
    """Yield the problems that pydantic has found in a model, in plain words; ``above`` leads to the model."""
    for mistake in error.errors(include_url=False):
        kind = MISPLACED_KEY if mistake["type"] in ("extra_forbidden", MISPLACED_KEY) else PLAIN
        message = explain(mistake, cls.model_fields, cls.__name__)
        yield problem(kind, message, (*above, *mistake["loc"]), mistake["input"])
