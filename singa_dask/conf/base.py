"""Conf: the base of all parts of a job's configuration, with its rules.

A model reports every mistake at once: those of its fields, unknown keys, and the rules that tie fields together. Rules
read values that have the types of their fields. Beside a mistake they read a mended model, which has the default of
the field in place of what is wrong; the error carries it up to the rules of the model above.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Annotated, Any, ClassVar, TypeVar, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)

from singa_dask.conf.findings import MISPLACED_KEY, PLAIN, Finding, Mistake, as_error, explain
from singa_dask.conf.kinds import as_list
from singa_dask.registry import Registry

C = TypeVar("C", bound="Conf")


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

    _wrong: Set[str] = PrivateAttr(frozenset())

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "block_key" not in vars(cls):
            cls.block_key = f"{cls.__name__.removesuffix('Conf').lower()}_conf"

    @property
    def wrong(self) -> Set[str]:
        """Keys whose values are wrong; only a mended model, which rules read beside mistakes, has any."""
        return self._wrong

    @classmethod
    def arranged(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Return the raw values, each under the key that the model has it under."""
        return data

    def rules(self) -> Iterator[Finding]:
        """Yield (path, message) for what is wrong between the values; a subclass says what."""
        return iter(())

    def part_rules(self, registries: Mapping[str, Registry[Any]]) -> Iterator[Finding]:
        """Yield (path, message) as `rules` does, for rules that ask the classes of registered parts."""
        return iter(())

    @classmethod
    def _read_blocks(cls, data: dict[str, Any], context: Mapping[str, Any]) -> Iterator[Mistake]:
        """Replace the blocks in the raw values by validated ones, add defaults, and yield mistakes; see `PartConf`."""
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _report_all(cls: type[C], data: Any, handler: ModelWrapValidatorHandler[C], info: ValidationInfo) -> C:
        context = info.context or {}
        if not isinstance(data, Mapping):
            try:
                return handler(data)
            except ValidationError as error:
                raise as_error(cls.__name__, explained(error, cls), mended(cls, {}, (), context)) from None
        given = cls.arranged({cls.aliases.get(key, key): value for key, value in data.items()})
        values = {**given}
        mistakes = [*cls._read_blocks(values, context)]
        try:
            model = handler(values)
        except ValidationError as error:
            mistakes = [*explained(error, cls), *mistakes]
            model = mended(cls, values, error.errors(include_url=False), context)
        if not any(cls.model_fields[key].is_required() for key in model.wrong if key in cls.model_fields):
            findings = (*model.rules(), *model.part_rules(context.get("registries") or {}))
            mistakes += [Mistake(PLAIN, path, message) for path, message in findings]
        if mistakes:
            raise as_error(cls.__name__, mistakes, model)
        model.model_fields_set.difference_update(values.keys() - given.keys())
        return model


def mended(
    cls: type[C], values: Mapping[str, Any], errors: Iterable[Mapping[str, Any]], context: Mapping[str, Any]
) -> C:
    """Return the model of raw values, with defaults in place of what is wrong.

    Parameters
    ----------
    cls : class
    values : mapping
    errors : iterable of mapping
        What pydantic says is wrong with them. A part that is a model is replaced by its own mended one.
    context : mapping
        That of the validation.
    """
    values, wrong = dict(values), set[str]()
    for mistake in errors:
        path, part = mistake["loc"], mistake["input"]
        if isinstance(part, Conf) and path[0] in values:
            values[path[0]] = _replaced(values[path[0]], path[1:], part)
    while True:
        try:
            right = {key: value for key, value in values.items() if str(key) not in wrong}
            kept = _lenient(cls).model_validate(right, context=context)
            break
        except ValidationError as error:
            wrong |= {str(mistake["loc"][0]) for mistake in error.errors(include_url=False)}
    model = cls.model_construct({*values}, **dict(kept))
    missing = {key for key, field in cls.model_fields.items() if field.is_required() and key not in values}
    model._wrong = wrong | {key for key in missing if not isinstance(getattr(model, key), Conf)}
    return model


def _replaced(value: Any, path: tuple[Any, ...], part: Conf) -> Any:
    """Return a mended part in place of a value, or of its item that the path begins with."""
    if not path or not isinstance(path[0], int):
        return part
    return [part if i == path[0] else each for i, each in enumerate(as_list(value))]


def _lenient(cls: type[Conf]) -> type[BaseModel]:
    """Return a model with the fields of another, none of which is required, and without its rules."""
    fields: dict[str, Any] = {}
    for key, field in cls.model_fields.items():
        default = _empty(field.annotation) if field.is_required() else field.get_default(call_default_factory=True)
        fields[key] = (Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation, default)
    return create_model(cls.__name__, __config__=cls.model_config, **fields)


def _empty(kind: Any) -> Any:
    """Return what stands for a required value that is missing."""
    if isinstance(kind, type) and issubclass(kind, Conf):
        return mended(kind, {}, (), {})
    return {str: "", list: []}.get(get_origin(kind) or kind)


def explained(error: ValidationError, cls: type[Conf], above: tuple[str | int, ...] = ()) -> Iterator[Mistake]:
    """Yield the mistakes that pydantic has found in a model, in plain words; ``above`` leads to the model."""
    for mistake in error.errors(include_url=False):
        kind = MISPLACED_KEY if mistake["type"] in ("extra_forbidden", MISPLACED_KEY) else PLAIN
        yield Mistake(kind, (*above, *mistake["loc"]), explain(mistake, cls.model_fields, cls.__name__))
