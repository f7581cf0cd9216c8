"""What all parts of a job's configuration have in common: the base model, its kinds of values, its rules.

A model reports every mistake at once: those of its fields, unknown keys, and the rules that tie fields
together, which look at the raw values and therefore work even beside a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from singa_dask.conf.explain import MISPLACED_KEY, PLAIN, explain
from singa_dask.conf.habits import suggest_part
from singa_dask.errors import ConfigError
from singa_dask.registry import Registry

__all__ = [
    "Conf",
    "Count",
    "Finding",
    "Many",
    "NetPhase",
    "NonNegative",
    "Positive",
    "Size",
    "as_list",
    "choice",
    "known",
    "look",
    "phase_name",
    "plain_name",
]

T = TypeVar("T")
C = TypeVar("C", bound="Conf")
Finding: TypeAlias = tuple[tuple[str | int, ...], str]

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]


class _Repeated:
    """Marks a list for which one value may stand alone, as protobuf's repeated fields do."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


Many: TypeAlias = Annotated[list[T], _Repeated()]


def as_list(value: object) -> list[Any]:
    """Return a list as it is, nothing as an empty one, and any other value as a list of one."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return [] if value is None else [value]


def plain_name(name: str, drop: str = "") -> str:
    """Take SINGA's k, and a prefix such as ``Unroll``, off the name of an enumeration's member."""
    if len(name) > 1 and name[0] == "k" and name[1].isupper():
        name = name[1:]
    return name.removeprefix(drop)


def choice(drop: str = "") -> BeforeValidator:
    """Let a Literal read SINGA's form of its names too."""
    return BeforeValidator(lambda value: plain_name(value, drop) if isinstance(value, str) else value)


def phase_name(value: object) -> object:
    """Read the name of a phase: ``train``, ``kTrain``, ``val``, ``validation``; others stay as they are."""
    if not isinstance(value, str):
        return value
    name = plain_name(value).lower()
    return "val" if name == "validation" else name


NetPhase: TypeAlias = Annotated[Literal["train", "val", "test"], BeforeValidator(phase_name)]


def known(kind: str, drop: str = "") -> AfterValidator:
    """Normalise the name of a part, and check it where the caller gave the registries.

    Parameters
    ----------
    kind : str
        Key in ``registries`` of the validation context: ``layer``, ``updater``, ``schedule``, ``initialiser``,
        ``algorithm`` or ``store``.
    """

    def check(name: str, info: ValidationInfo) -> str:
        registries: Mapping[str, Registry[Any]] = (info.context or {}).get("registries") or {}
        registry = registries.get(kind)
        is_own = "." in name
        plain = name if is_own else plain_name(name, drop)
        if registry is None or not name or plain in registry:
            return plain
        if name in registry:
            return name
        if is_own:
            return _own(registry, name)
        message = f"unknown {registry.kind} {name!r}. {suggest_part(kind, plain, registry.names())}"
        raise PydanticCustomError(PLAIN, "{message}", {"message": message})

    return AfterValidator(check)


def _own(registry: Registry[Any], name: str) -> str:
    """Check the name of a class in a module of the user's own."""
    try:
        registry.find(name)
    except ConfigError as error:
        raise PydanticCustomError(PLAIN, "{message}", {"message": str(error)}) from None
    return name


def look(data: object, key: str, kind: type[T], default: T) -> T:
    """Read a raw value, or a model's field, for a rule: the default stands for a missing or mistyped one."""
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

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield (path, message) for what is wrong between the raw values; a subclass says what."""
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _report_all(cls: type[C], data: Any, handler: ModelWrapValidatorHandler[C]) -> C:
        if not isinstance(data, Mapping):
            return _explained(cls, data, handler, ())
        data = {**data}
        for other, key in cls.aliases.items():
            if other in data:
                data[key] = data.pop(other)
        return _explained(cls, data, handler, tuple(cls.rules(data)))


def _explained(cls: type[C], data: Any, handler: ModelWrapValidatorHandler[C], findings: Sequence[Finding]) -> C:
    """Run pydantic's checks, put its findings in plain words and add ours."""
    details: list[InitErrorDetails] = []
    try:
        made = handler(data)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            kind = MISPLACED_KEY if found["type"] in ("extra_forbidden", MISPLACED_KEY) else PLAIN
            words = PydanticCustomError(kind, "{message}", {"message": explain(found, cls.model_fields, cls.__name__)})
            details.append(InitErrorDetails(type=words, loc=found["loc"], input=found["input"]))
    for path, message in findings:
        words = PydanticCustomError(PLAIN, "{message}", {"message": message})
        details.append(InitErrorDetails(type=words, loc=path, input=data))
    if details:
        raise ValidationError.from_exception_data(cls.__name__, details)
    return made
