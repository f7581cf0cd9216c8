"""What all parts of a job's configuration have in common: the base model, its kinds of values, its rules.

A model reports every mistake at once: those of its fields, unknown keys, and the rules that tie fields
together, which look at the raw values and therefore work even beside a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import (
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

from singa_dask.conf.explain import MISPLACED_KEY, PLAIN, explain, suggest_part
from singa_dask.errors import ConfigError
from singa_dask.registry import Registry

__all__ = [
    "Conf",
    "Count",
    "Field",
    "Finding",
    "Many",
    "NetPhase",
    "NonNegative",
    "Positive",
    "RegisteredName",
    "Shorthand",
    "Size",
    "as_list",
    "choice",
    "class_of",
    "explained",
    "phase_name",
    "plain_name",
    "problem",
    "raw_value",
    "registry_of",
]

T = TypeVar("T")
C = TypeVar("C", bound="Conf")
Finding: TypeAlias = tuple[tuple[str | int, ...], str]

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Shorthand:
    """Lets a short form stand for a value.

    Attributes
    ----------
    expand : callable
        Returns the value for what a job says.
    forms : callable
        The JSON schema of the value -> those of all forms that a job may say.
    """

    expand: Callable[[object], object]
    forms: Callable[[JsonSchemaValue], list[Any]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": self.forms(handler(schema))}


def as_list(value: object) -> list[Any]:
    """Return a list as it is, nothing as an empty one, and any other value as a list of one."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return [] if value is None else [value]


# A list for which one value may stand alone, as protobuf's repeated fields do.
Many: TypeAlias = Annotated[list[T], Shorthand(as_list, lambda array: [array["items"], array])]


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


@dataclass(frozen=True)
class RegisteredName:
    """Normalises the name of a part, and checks it where the caller gives the registries.

    Attributes
    ----------
    kind : str
        Key in ``registries`` of the validation context: ``layer``, ``updater``, ``schedule``, ``initialiser``,
        ``algorithm`` or ``store``. The JSON schema has it as ``registry``.
    """

    kind: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "registry": self.kind}

    def check(self, name: str, info: ValidationInfo) -> str:
        """Return the name without SINGA's k."""
        registry = registry_of(self.kind, info.context)
        is_own = "." in name
        plain = name if is_own else plain_name(name)
        if registry is None or not name or plain in registry:
            return plain
        if name in registry:
            return name
        if is_own:
            return _own(registry, name)
        message = f"unknown {registry.kind} {name!r}. {suggest_part(self.kind, plain, registry.names())}"
        raise PydanticCustomError(PLAIN, "{message}", {"message": message})


def class_of(registry: Registry[Any] | None, name: str) -> Any:
    """Return the class that a part names, None if that is not known."""
    try:
        return registry.find(name) if registry is not None and name else None
    except ConfigError:
        return None


def registry_of(kind: str, context: Mapping[str, Any] | None) -> Registry[Any] | None:
    """Return a registry of the validation context, None where the caller has not given it."""
    registries: Mapping[str, Registry[Any]] = (context or {}).get("registries") or {}
    return registries.get(kind)


def _own(registry: Registry[Any], name: str) -> str:
    """Check the name of a class in a module of the user's own."""
    try:
        registry.find(name)
    except ConfigError as error:
        raise PydanticCustomError(PLAIN, "{message}", {"message": str(error)}) from None
    return name


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

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield (path, message) for what is wrong between the raw values; a subclass says what."""
        return iter(())

    @classmethod
    def rules_of_types(cls, data: Mapping[str, Any], registries: Mapping[str, Registry[Any]]) -> Iterator[Finding]:
        """Yield (path, message) as `rules` does, for what the registered classes of parts tell."""
        return iter(())

    @classmethod
    def _read_blocks(cls, data: dict[str, Any], context: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        """Replace the blocks in the raw values by validated ones, add defaults, and yield problems; see `PartConf`."""
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _report_all(cls: type[C], data: Any, handler: ModelWrapValidatorHandler[C], info: ValidationInfo) -> C:
        problems: list[InitErrorDetails] = []
        added: set[str] = set()
        if isinstance(data, Mapping):
            given = cls.arranged({cls.aliases.get(key, key): value for key, value in data.items()})
            data = {**given}
            registries = (info.context or {}).get("registries") or {}
            findings = (*cls.rules(given), *cls.rules_of_types(given, registries))
            problems = [problem(PLAIN, message, path, given) for path, message in findings]
            problems = [*cls._read_blocks(data, info.context or {}), *problems]
            added = data.keys() - given.keys()
        try:
            model = handler(data)
        except ValidationError as error:
            problems = [*explained(error, cls), *problems]
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        model.model_fields_set.difference_update(added)
        return model


def problem(kind: str, message: str, path: tuple[str | int, ...], value: object) -> InitErrorDetails:
    """Return one problem in the form of pydantic; ``kind`` is PLAIN or MISPLACED_KEY."""
    return InitErrorDetails(type=PydanticCustomError(kind, "{message}", {"message": message}), loc=path, input=value)


def explained(error: ValidationError, cls: type[Conf], above: tuple[str | int, ...] = ()) -> Iterator[InitErrorDetails]:
    """Yield the problems that pydantic has found in a model, in plain words; ``above`` leads to the model."""
    for mistake in error.errors(include_url=False):
        kind = MISPLACED_KEY if mistake["type"] in ("extra_forbidden", MISPLACED_KEY) else PLAIN
        message = explain(mistake, cls.model_fields, cls.__name__)
        yield problem(kind, message, (*above, *mistake["loc"]), mistake["input"])
