"""Parts: registered classes with options, and models that name them.

A class declares its options with ``options_class = XConf``, so that the options of a layer, updater or schedule are in
the same file as its class. Validation, the JSON schema and help find the options through the registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import ConfigDict, SerializationInfo, SerializerFunctionWrapHandler, ValidationError, model_serializer

from singa_dask.conf.base import Conf, explained
from singa_dask.conf.foreign_names import suggest_key
from singa_dask.conf.kinds import class_of, plain_name, registry_of
from singa_dask.conf.mistakes import MISPLACED_KEY, PLAIN, Mistake
from singa_dask.errors import ConfigError, Problem
from singa_dask.registry import Registry

B = TypeVar("B", bound=Conf)
B_co = TypeVar("B_co", bound=Conf, covariant=True)
P = TypeVar("P", bound="PartConf")


class HasOptions:
    """Base of the classes that declare options, such as layers, updaters and stores.

    Attributes
    ----------
    options_class : type of Conf or None
        Class of the options, if there are any. In a job file they are the block ``options_class.block_key``.
    """

    options_class: ClassVar[type[Conf] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(vars(cls).get("block"), type):  # its name until version 0.2
            raise TypeError(f"{cls.__name__}.block has no effect. Write options_class = ...")


class _WithOptions(Protocol[B_co]):
    @property
    def options_class(self) -> type[B_co]: ...

    @property
    def conf(self) -> PartConf: ...


class Part(HasOptions):
    """Base of the classes that read their options from a block of the job, such as layers and updaters."""

    @property
    def options(self: _WithOptions[B]) -> B:
        """The options of this part, an instance of ``options_class``."""
        return self.conf.block(self.options_class)


class PartConf(Conf):
    """A model that names a registered class, and holds blocks in addition to its own fields.

    With ``registries`` in the validation context, each block is validated by its class, and a missing block of the
    named class is added with defaults. Without registries, blocks stay mappings until `block` validates them.
    """

    model_config = ConfigDict(extra="allow")

    kind: ClassVar[str] = ""
    """Kind of parts, e.g. "layer"; a key of ``registries``."""
    type_key: ClassVar[str] = "type"
    """Key whose value is the name of the class, e.g. "type"."""

    @classmethod
    def arranged(cls, data: dict[str, Any], context: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
        registry, name = registry_of(cls.kind, context), data.get(cls.type_key)
        name = name if isinstance(name, str) else ""
        own: type[Conf] | None = getattr(class_of(registry, name), "options_class", None)
        known = {own.block_key: own} if own else {}
        blocks = {key: value for key, value in data.items() if key not in cls.model_fields}
        # blocks of user classes are known only after all classes are imported
        if registry and blocks.keys() - known.keys():
            known = options_classes(registry) | known
        default, mistakes = _default_block(own, name) if own and data.get(own.block_key) is None else ({}, [])
        values = {key: value for key, value in data.items() if key not in blocks}
        for key, value in blocks.items():
            if key not in known and (registry or not str(key).endswith("_conf")):
                hint = _hint(str(key), cls, own, known)
                mistakes.append(Mistake(MISPLACED_KEY, (key,), f"unknown key. {hint}"))
            elif value is not None:
                try:
                    values[key] = validated_block(known.get(key), value, context)
                except ValidationError as error:
                    mistakes += explained(error, known.get(key, Conf), (key,))
                    # the input of the error is the repaired block
                    values[key] = error.errors(include_url=False)[0]["input"]
        return values | default, mistakes

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave out blocks that were added with their defaults, if only keys that were set are written."""
        values: dict[str, Any] = handler(self)
        added = self.blocks.keys() - self.model_fields_set if info.exclude_unset else ()
        return {key: value for key, value in values.items() if key not in added}

    @property
    def blocks(self) -> dict[str, Any]:
        """The blocks by key."""
        return {key: value for key, value in (self.model_extra or {}).items() if value is not None}

    def with_block(self: P, block: Conf) -> P:
        """Return a copy in which ``block`` replaces the earlier block of the same kind."""
        return self.model_copy(update={block.block_key: block})

    def given_block(self, kind: type[B]) -> B | None:
        """Return the block of a kind, or None.

        Raises
        ------
        ConfigError
            The block was read without registries, and is not valid.
        """
        value = (self.model_extra or {}).get(kind.block_key)
        return value if value is None or isinstance(value, kind) else checked_block(kind, value, (kind.block_key,))

    def block(self, kind: type[B]) -> B:
        """Return the block of a kind; if the job has none, a block with default values.

        Raises
        ------
        ConfigError
            The block is missing, and has keys without defaults.
        """
        block = self.given_block(kind)
        if block is not None:
            return block
        needed = required_keys(kind)
        if needed:
            message = f"{getattr(self, self.type_key)} needs this block, with {', '.join(needed)}."
            raise ConfigError(Problem((kind.block_key,), message))
        return kind()


def _default_block(own: type[Conf], name: str) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the block of a type with its defaults under its key, or the mistake that the job has no such block."""
    needed = required_keys(own)
    if not needed and not own.must_be_given:
        return {own.block_key: own()}, []
    with_keys = f"with {', '.join(needed)}, " if needed else ""
    message = f"{plain_name(name)} needs this block, {with_keys}but the block is missing."
    return {}, [Mistake(PLAIN, (own.block_key,), message)]


def _hint(key: str, cls: type[Conf], own: type[Conf] | None, known: Iterable[str]) -> str:
    """Return advice on an unknown key of a part, whose own block may have the key."""
    hint = suggest_key(key, [*cls.model_fields, *([own.block_key, *own.model_fields] if own else known)])
    for each in own.model_fields if own else ():
        if own and (each == key or hint.startswith(f"Did you mean {each!r}?")):
            hint = f"Did you mean {each!r}? Set it in {own.block_key}: {{{each}: ...}}."
    return hint


def options_classes(registry: Registry[Any]) -> dict[str, type[Conf]]:
    """Return the classes of options that the classes of a registry declare, by the key of their block."""
    found: dict[str, type[Conf]] = {}
    for cls in registry.classes():
        options: type[Conf] | None = getattr(cls, "options_class", None)
        if options is not None:
            found.setdefault(options.block_key, options)
    return found


def block_value(block: Conf | Mapping[str, Any] | None, key: str, default: Any = None) -> Any:
    """Return the value of a key of a block; ``block`` is a mapping if it was read without registries."""
    return block.get(key, default) if isinstance(block, Mapping) else getattr(block, key, default)


def required_keys(options: type[Conf]) -> list[str]:
    """Return the options that have no default."""
    return [key for key, field in options.model_fields.items() if field.is_required()]


def read_options(options_class: type[Conf], options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate options, and return them with defaults.

    Raises
    ------
    ConfigError
        Lists all wrong values and unknown keys.
    """
    return dict(checked_block(options_class, options))


def checked_block(kind: type[B], value: Any, above: tuple[str, ...] = ()) -> B:
    """Validate a block without registries; raise a ConfigError with paths below ``above``."""
    try:
        block: B = validated_block(kind, value, {})
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise ConfigError([Problem((*above, *each["loc"]), each["msg"]) for each in errors]) from None
    return block


def validated_block(kind: type[B] | None, value: Any, context: Mapping[str, Any]) -> Any:
    """Validate a block; without a ``kind``, check only that it is a block.

    A block of another class with the same key is converted.
    """
    if kind is None:
        return value if isinstance(value, Mapping | Conf) else Conf.model_validate(value)
    other = isinstance(value, Conf) and not isinstance(value, kind)
    return kind.model_validate(value.model_dump() if other else value, context=dict(context))
