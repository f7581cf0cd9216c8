"""Types of values in job files: numbers, lists, choices, and names of registered parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WrapSerializer,
)
from pydantic import Field as Field
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from singa_dask.conf.foreign_names import suggest_part
from singa_dask.conf.mistakes import PLAIN
from singa_dask.errors import ConfigError
from singa_dask.registry import Registry

T = TypeVar("T")

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
PYTHON_NAME = "python-name"
"""Format, in a JSON schema, of the name of a class or function."""
Called = Annotated[str, Field(json_schema_extra={"format": PYTHON_NAME})]
"""Name of a class or function of a module, ``mymodels:Encoder``; in Python, the class or function itself."""


@dataclass(frozen=True)
class Shorthand:
    """Annotation that allows a short form of a value.

    Attributes
    ----------
    expand : callable
        Converts a short form to the value.
    forms : callable
        Takes the JSON schema of the value, and returns the schemas of all forms.
    """

    expand: Callable[[object], object]
    forms: Callable[[JsonSchemaValue], list[Any]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": self.forms(handler(schema))}


def as_list(value: object) -> list[Any]:
    """Return a list unchanged, None as an empty list, and any other value as a list of one."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return [] if value is None else [value]


# SINGA's types beside which user_type, or user_alg, names the type
PLACEHOLDERS = ("kUserLayer", "kUserAlg", "kUserUpdater", "kUserChange", "kUserInit")
# context of a serialisation that writes a list of one value as this value, if the key accepts it (`Many`)
BRIEF = "brief"


def _write_many(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
    written = handler(value)
    return written[0] if info.context == BRIEF and len(written) == 1 and not isinstance(written[0], dict) else written


# a list; a list of one value may be written without brackets, like a repeated field of protobuf
Many: TypeAlias = Annotated[
    list[T], Shorthand(as_list, lambda array: [array["items"], array]), WrapSerializer(_write_many)
]


def plain_name(name: str, drop: str = "") -> str:
    """Remove SINGA's k, and a prefix such as ``Unroll``, from a name: ``kUnrollOneToAll`` to ``OneToAll``."""
    if len(name) > 1 and name[0] == "k" and name[1].isupper():
        name = name[1:]
    return name.removeprefix(drop)


def choice(drop: str = "") -> BeforeValidator:
    """Allow SINGA's form of the names of a Literal."""
    return BeforeValidator(lambda value: plain_name(value, drop) if isinstance(value, str) else value)


def phase_name(value: object) -> object:
    """Normalise the name of a phase: ``kTrain`` to ``train``, ``validation`` to ``val``."""
    if not isinstance(value, str):
        return value
    name = plain_name(value).lower()
    return "val" if name == "validation" else name


NetPhase: TypeAlias = Annotated[Literal["train", "val", "test"], BeforeValidator(phase_name)]


@dataclass(frozen=True)
class RegisteredName:
    """Annotation that normalises the name of a part, and checks it if the context has registries.

    Attributes
    ----------
    kind : str
        Key in ``registries`` of the validation context: ``layer``, ``updater``, ``schedule``, ``initialiser``,
        ``algorithm`` or ``store``; ``registry`` in the JSON schema.
    """

    kind: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "registry": self.kind}

    def check(self, name: str, info: ValidationInfo) -> str:
        """Return the name without SINGA's k, or raise an error if it is unknown."""
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
    """Return the registered class with this name, or None if there is none."""
    try:
        return registry.find(name) if registry is not None and name else None
    except ConfigError:
        return None


def registry_of(kind: str, context: Mapping[str, Any] | None) -> Registry[Any] | None:
    """Return a registry of the validation context, or None."""
    registries: Mapping[str, Registry[Any]] = (context or {}).get("registries") or {}
    return registries.get(kind)


def _own(registry: Registry[Any], name: str) -> str:
    """Check the name of a class in a user module."""
    try:
        registry.find(name)
    except ConfigError as error:
        raise PydanticCustomError(PLAIN, "{message}", {"message": str(error)}) from None
    return name
