"""Conf: the base of all models of a job.

A model reports all mistakes at once: wrong values, unknown keys, and violated rules between fields. If a value is
wrong, the rules check a repaired model, in which the default of the field replaces the value. The error contains the
repaired model, so that the rules of the enclosing model can use it.
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

from singa_dask.conf.kinds import PLACEHOLDERS, as_list
from singa_dask.conf.mistakes import MISPLACED_KEY, PLAIN, Finding, Mistake, as_error, explain
from singa_dask.registry import Registry

C = TypeVar("C", bound="Conf")


class Conf(BaseModel):
    """Base of all models of a job: immutable, strict in its types, without unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        # a job uses few of the models, so build validators on first use
        defer_build=True,
    )

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of keys, from SINGA's job files."""
    block_key: ClassVar[str] = ""
    """Key of the block in a job; by default ``innerproduct_conf`` for InnerProductConf."""
    options_of: ClassVar[str] = ""
    """Kind of parts, e.g. "store", whose options are also keys of this model; a key of ``registries``."""
    rest: ClassVar[str] = ""
    """Key that collects the keyword arguments of a layer in Python that are not keys of the layer."""
    must_be_given: ClassVar[bool] = False
    """Whether a job must have the block even if all of its keys have defaults."""

    _wrong: Set[str] = PrivateAttr(frozenset())

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "block_key" not in vars(cls):
            cls.block_key = f"{cls.__name__.removesuffix('Conf').lower()}_conf"

    @property
    def wrong(self) -> Set[str]:
        """Keys whose values were wrong; empty unless this is a repaired model."""
        return self._wrong

    @classmethod
    def arranged(cls, data: dict[str, Any], context: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
        """Return the raw values as the fields take them, and mistakes in keys and blocks; subclasses override it."""
        return data, []

    def rules(self) -> Iterator[Finding]:
        """Yield (path, message) for each mistake in how several values go together; subclasses override it."""
        return iter(())

    def part_rules(self, registries: Mapping[str, Registry[Any]]) -> Iterator[Finding]:
        """Yield (path, message) for rules that need the classes of registered parts; see `rules`."""
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _report_all(cls: type[C], data: Any, handler: ModelWrapValidatorHandler[C], info: ValidationInfo) -> C:
        context = info.context or {}
        if not isinstance(data, Mapping):
            try:
                return handler(data)
            except ValidationError as error:
                raise as_error(cls.__name__, explained(error, cls), repaired(cls, {}, (), context)) from None
        model, mistakes = cls._validated(data, handler, context)
        if mistakes:
            raise as_error(cls.__name__, mistakes, model)
        return model

    @classmethod
    def _validated(
        cls: type[C], data: Mapping[str, Any], handler: ModelWrapValidatorHandler[C], context: Mapping[str, Any]
    ) -> tuple[C, list[Mistake]]:
        """Return the model of raw values, repaired if necessary, and all mistakes."""
        named = {cls.aliases.get(key, key): value for key, value in data.items()}
        values, mistakes = cls.arranged(named, context)
        for key, own in cls.aliases.items():
            if {key, own} <= data.keys() and data[own] not in PLACEHOLDERS:
                message = f"{own} and {key} are two names of the same key. Remove one of them."
                mistakes = [Mistake(MISPLACED_KEY, (key,), message), *mistakes]
        try:
            model = handler(values)
        except ValidationError as error:
            model = repaired(cls, values, error.errors(include_url=False), context)
            mistakes = [*explained(error, cls), *mistakes]
        if not any(cls.model_fields[key].is_required() for key in model.wrong if key in cls.model_fields):
            findings = (*model.rules(), *model.part_rules(context.get("registries") or {}))
            mistakes += [Mistake(PLAIN, path, message) for path, message in findings]
        # blocks that were added with their defaults are not set
        model.model_fields_set.difference_update(values.keys() - data.keys() - cls.model_fields.keys())
        return model, mistakes


def repaired(
    cls: type[C], values: Mapping[str, Any], errors: Iterable[Mapping[str, Any]], context: Mapping[str, Any]
) -> C:
    """Return a model of raw values, with defaults in place of wrong values.

    Parameters
    ----------
    cls : class
    values : mapping
    errors : iterable of mapping
        Errors of pydantic. A wrong value that is itself a model is replaced by the repaired model in its error.
    context : mapping
        Context of the validation.
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
    """Replace a value, or an item of a list (the first element of ``path``), by a repaired model."""
    if not path or not isinstance(path[0], int):
        return part
    return [part if i == path[0] else each for i, each in enumerate(as_list(value))]


def _lenient(cls: type[Conf]) -> type[BaseModel]:
    """Return a model with the same fields, but without required fields and without rules."""
    fields: dict[str, Any] = {}
    for key, field in cls.model_fields.items():
        default = _empty(field.annotation) if field.is_required() else field.get_default(call_default_factory=True)
        fields[key] = (Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation, default)
    return create_model(cls.__name__, __config__=cls.model_config, **fields)


def _empty(kind: Any) -> Any:
    """Return a placeholder for a missing required value."""
    if isinstance(kind, type) and issubclass(kind, Conf):
        return repaired(kind, {}, (), {})
    return {str: "", list: []}.get(get_origin(kind) or kind)


def explained(error: ValidationError, cls: type[Conf], above: tuple[str | int, ...] = ()) -> list[Mistake]:
    """Return the mistakes that pydantic found in a model, in plain words; ``above`` is the path of the model."""
    return [
        Mistake(
            MISPLACED_KEY if found["type"] in ("extra_forbidden", MISPLACED_KEY) else PLAIN,
            (*above, *found["loc"]),
            explain(found, cls.model_fields, cls.__name__),
        )
        for found in error.errors(include_url=False)
    ]
