"""What all parts of a job's configuration have in common: the base model, its kinds of values, its rules.

A model reports every mistake at once: those of its fields, unknown keys, and the rules that tie fields
together, which look at the raw values and therefore work even beside a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic import (
    Field as Field,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from singa_dask.errors import ConfigError, Problem
from singa_dask.redaction import HIDDEN
from singa_dask.registry import Registry, suggest

# Translate pydantic's findings into messages for the author of a job file; names from other programs.


INNER_PRODUCT = ("dense", "fc", "fullyconnected", "linear")
MAX_POOLING, AVERAGE_POOLING = (f"Say type: Pooling, with pooling_conf: {{pool: {pool}}}." for pool in ("MAX", "AVG"))
GLOROT = (
    "Leave init out: weights of InnerProduct and Convolution then start so. "
    "Or say type: UniformSqrtFanInOut, low: -2.449, high: 2.449."
)
HE = "Say type: GaussianSqrtFanIn, std: 1.414."

# by kind of part and lower-case name without "_" and "-": a name of ours, or what to do
PARTS: dict[str, dict[str, str]] = {
    "layer": {
        **dict.fromkeys(INNER_PRODUCT, "InnerProduct"),
        **dict.fromkeys(("conv", "conv2d", "convolution2d"), "Convolution"),
        **dict.fromkeys(("maxpool", "maxpool2d", "maxpooling", "maxpooling2d"), MAX_POOLING),
        **dict.fromkeys(("avgpool", "avgpool2d", "averagepooling", "averagepooling2d"), AVERAGE_POOLING),
        **dict.fromkeys(
            ("categoricalcrossentropy", "crossentropy", "crossentropyloss", "nllloss", "softmaxwithloss"), "SoftmaxLoss"
        ),
        **dict.fromkeys(
            ("bceloss", "bcewithlogitsloss", "binarycrossentropy", "sigmoidcrossentropy"), "SigmoidCrossEntropyLoss"
        ),
        **dict.fromkeys(("l2loss", "meansquarederror", "mse", "mseloss"), "EuclideanLoss"),
        **dict.fromkeys(("batchnorm1d", "batchnorm2d", "batchnormalization"), "BatchNorm"),
        **dict.fromkeys(("data", "dataset", "input", "inputlayer"), "RecordInput"),
        **dict.fromkeys(("concat", "concatenate"), "Concate"),
        "flatten": "Leave it out: InnerProduct takes the values of a record in a row.",
        "localresponsenorm": "LRN",
        "simplernn": "RNN",
        "layernormalization": "LayerNorm",
        "groupnormalization": "GroupNorm",
        "swish": "SiLU",
        **dict.fromkeys(("eltwise", "elementwiseadd", "residual", "shortcut"), "Add"),
        **dict.fromkeys(("adaptiveavgpool2d", "globalaveragepooling2d", "globalavgpool"), "GlobalPooling"),
        **dict.fromkeys(("attention", "selfattention"), "MultiHeadAttention"),
        **dict.fromkeys(("positionembedding", "positionalencoding"), "PositionalEmbedding"),
    },
    "initialiser": {
        **dict.fromkeys(("glorot", "glorotuniform", "xavier", "xavieruniform"), GLOROT),
        **dict.fromkeys(("he", "henormal", "kaiming", "kaimingnormal", "msra"), HE),
        **dict.fromkeys(("normal", "randomnormal"), "Gaussian"),
        "randomuniform": "Uniform",
        "zeros": "Say type: Constant, value: 0.",
        "ones": "Say type: Constant, value: 1.",
    },
    "updater": {"adamax": "AdamMax", "momentum": "Say type: SGD, momentum: 0.9."},
    "schedule": {"constant": "Fixed", "exponentialdecay": "Exponential", "multistep": "FixedStep", "steplr": "Step"},
    "algorithm": {"backprop": "BP", "backpropagation": "BP", "contrastivedivergence": "CD"},
    "store": {"imagefolder": "image-folder"},
}
OWN_LAYER = "An activation is a layer of its own: add one of type ReLU, Sigmoid or Tanh that reads this one."
LOSS = "A loss is a layer: add one of type SoftmaxLoss or EuclideanLoss to neuralnet."
UNITS = "Say it in the layer's block: innerproduct_conf: {num_output: N}, or dim_hidden of a recurrent layer."
# by such a name of a key: keys of ours, and what to do where none of them may stand
KEYS: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(
        ("lr", "learningrate"),
        (("base_lr", "learning_rate"), "Say it in updater: {learning_rate: {type: Fixed, base_lr: 0.01}}."),
    ),
    "layers": (("layer",), "Say neuralnet: {layer: [...]}."),
    **dict.fromkeys(
        ("epoch", "epochs", "maxepochs", "nepochs", "numepochs", "numtrainepochs"),
        (("epochs",), "Say it at the top of the job: epochs: 20."),
    ),
    **dict.fromkeys(("iterations", "maxiter", "maxsteps", "steps"), (("train_steps",), "")),
    **dict.fromkeys(("batch", "batchsize"), (("batchsize",), "Say it in the store_conf of the input layers.")),
    **dict.fromkeys(("optimiser", "optimizer", "solver"), (("updater",), "")),
    **dict.fromkeys(("model", "net", "network"), (("neuralnet",), "")),
    **dict.fromkeys(("criterion", "loss"), ((), LOSS)),
    **dict.fromkeys(("hiddensize", "numunits", "outfeatures", "units"), (("num_output", "dim_hidden"), UNITS)),
    **dict.fromkeys(("filters", "outchannels"), (("num_filters",), "Say convolution_conf: {num_filters: N}.")),
    **dict.fromkeys(("kernelsize", "poolsize"), (("kernel",), "Say it in the layer's block: kernel.")),
    "strides": (("stride",), "Say it in the layer's block: stride."),
    "padding": (("pad",), "Say it in the layer's block: pad."),
    "activation": ((), OWN_LAYER),
    **dict.fromkeys(("bottom", "input", "inputs", "source"), (("srclayers",), "")),
    "phase": (("include",), ""),
    **dict.fromkeys(("dropout", "rate"), (("dropout_ratio",), "")),
    **dict.fromkeys(("embeddingdim", "outputdim"), (("feature_dim",), "")),
    **dict.fromkeys(("bias", "usebias"), (("bias_term",), "Say it in the layer's block: bias_term.")),
    **dict.fromkeys(("initializer", "kernelinitializer", "weightfiller"), (("init",), "Say it as param: {init: ...}.")),
    **dict.fromkeys(("params", "weights"), (("param",), "")),
    **dict.fromkeys(("nworkers", "numworkers", "workers"), (("nworkers_per_group",), "Say it in cluster.")),
    **dict.fromkeys(("cuda", "device", "gpus"), (("gpu",), "")),
    **dict.fromkeys(("display", "logfreq"), (("disp_freq",), "")),
}
# by class of a block: what to write for a number, and for a name
WRITTEN_OUT = {
    "LRGenConf": ("learning_rate: {{type: Fixed, base_lr: {}}}", "learning_rate: {{type: {}}}"),
    "UpdaterConf": ("", "updater: {{type: {}, learning_rate: {{type: Fixed, base_lr: 0.01}}}}"),
    "InitConf": ("init: {{type: Constant, value: {}}}", "init: {{type: {}}}"),
    "AlgConf": ("", "train_one_batch: {{alg: {}}}"),
}


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _listed(hint: str, known: Iterable[str]) -> str:
    return f"{hint} Known: {', '.join(sorted(known))}."


def suggest_part(kind: str, name: str, known: Collection[str]) -> str:
    """Suggest what the unknown name of a part may mean, and list the known ones; ``kind`` as in `load`."""
    hint = PARTS.get(kind, {}).get(_folded(name), "")
    if hint in known:
        return _listed(f"Did you mean {hint!r}?", known)
    return _listed(hint, known) if hint.endswith(".") else suggest(name, known)


def suggest_key(name: str, known: Collection[str]) -> str:
    """Suggest what an unknown key may mean, and list the known ones."""
    keys, hint = KEYS.get(_folded(name), ((), ""))
    meant = next((key for key in keys if key in known), None)
    if meant:
        return _listed(f"Did you mean {meant!r}?", known)
    return _listed(hint, known) if hint else suggest(name, known)


def written_out(block: str, value: object) -> str:
    """Return what to write instead of a single value where a block is expected; empty if that is not known."""
    number, name = WRITTEN_OUT.get(block, ("", ""))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    form = number if is_number else name if isinstance(value, str) and value.isidentifier() else ""
    return f" Write {form.format(value)}." if form else ""


PLAIN = "plain"
MISPLACED_KEY = "unknown_key"

WANTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def shown(value: object) -> str:
    """Return a short form of a job file's value for an error message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def explain(found: Mapping[str, Any], keys: Collection[str], block: str = "") -> str:
    """Return a plain message for one finding.

    Parameters
    ----------
    found : mapping
        One of ``ValidationError.errors()``.
    keys : collection of str
        Keys of the model that reports it.
    block : str
        Name of its class.
    """
    kind, value, limits = found["type"], found["input"], found.get("ctx", {})
    if "storage_options" in found["loc"]:
        value = HIDDEN
    if kind in (PLAIN, MISPLACED_KEY):
        return str(found["msg"])
    if kind == "extra_forbidden":
        return f"unknown key. {suggest_key(str(found['loc'][-1]), keys)}"
    if kind == "missing":
        return "this key is required, and missing."
    if kind in BOUNDS:
        words, limit = BOUNDS[kind]
        return f"expected {words} {limits[limit]}, got {shown(value)}."
    if kind == "literal_error":
        names = [name for name in re.findall(r"'([^']*)'", limits["expected"]) if name]
        return f"unknown value {shown(value)}. {suggest(value if isinstance(value, str) else '', names)}"
    if kind == "too_short":
        return f"expected at least {limits['min_length']} of them, got {limits['actual_length']}."
    if kind == "string_too_short":
        return "expected a text that is not empty."
    if kind in WANTED:
        if kind.startswith("model_") or kind == "dict_type":
            return f"expected {WANTED[kind]}, got {shown(value)}.{written_out(block, value)}"
        hint = " Put it in quotes." if kind == "string_type" and isinstance(value, (bool, int, float)) else ""
        return f"expected {WANTED[kind]}, got {shown(value)}.{hint}"
    return f"{found['msg']} (got {shown(value)})."


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


# Parts of a job that name a registered class, and hold the blocks of keys that registered classes read.
#
# A class declares what it reads, ``block = XConf``. So the keys of a new layer, updater or schedule are in one file
# with it: validation, the JSON schema and help ask the registry.


B = TypeVar("B", bound=Conf)
P = TypeVar("P", bound="PartConf")


def blocks_of(registry: Registry[Any]) -> dict[str, type[Conf]]:
    """Return the blocks that the classes of a registry declare, by key."""
    blocks: dict[str, type[Conf]] = {}
    for cls in registry.classes():
        block: type[Conf] | None = getattr(cls, "block", None)
        if block is not None:
            blocks.setdefault(block.block_key, block)
    return blocks


def raw_blocks(part: object) -> list[str]:
    """Return the keys of the blocks in raw values, or in a `PartConf`."""
    keys = part.blocks if isinstance(part, PartConf) else part if isinstance(part, Mapping) else ()
    return [key for key in keys if str(key).endswith("_conf")]


def required_keys(block: type[Conf]) -> list[str]:
    """Return the keys of a block that have no default."""
    return [key for key, field in block.model_fields.items() if field.is_required()]


def read_options(block: type[Conf], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a block by key, with its defaults.

    Raises
    ------
    ConfigError
        A value is wrong, or a key unknown; all problems at once.
    """
    try:
        return dict(_validated(block, options, {}))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise ConfigError([Problem(each["loc"], each["msg"]) for each in errors]) from None


class PartConf(Conf):
    """A part of a job: it names a registered class, and holds blocks of keys beside the fields of the model.

    With ``registries`` in the validation context every block is validated by the class that is declared for its key,
    and the block of the named class is added with its defaults where it is left out. Without them blocks stay plain
    values, which `block` validates when they are asked for.
    """

    model_config = ConfigDict(extra="allow")

    kind: ClassVar[str] = ""
    """Key of its registry in ``registries``."""
    type_key: ClassVar[str] = "type"
    """Key that names the class."""

    @classmethod
    def _read_blocks(cls, data: dict[str, Any], context: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        registry = registry_of(cls.kind, context)
        name = raw_value(data, cls.type_key, str, "")
        own: type[Conf] | None = getattr(class_of(registry, name), "block", None)
        known = {own.block_key: own} if own else {}
        # to know the others all classes are imported
        if registry and data.keys() - cls.model_fields.keys() - known.keys():
            known = blocks_of(registry) | known
        if own and data.get(own.block_key) is None:
            yield from cls._add_own_block(own, data, name)
        for key in [key for key in data if key not in cls.model_fields]:
            value = data.pop(key)
            if key not in known and (registry or not str(key).endswith("_conf")):
                names = [own.block_key, *own.model_fields] if own else known
                hint = suggest_key(str(key), [*cls.model_fields, *names])
                for each in own.model_fields if own else ():
                    if own and (each == key or hint.startswith(f"Did you mean {each!r}?")):
                        hint = f"Did you mean {each!r}? Say it in {own.block_key}: {{{each}: ...}}."
                yield problem(MISPLACED_KEY, f"unknown key. {hint}", (key,), value)
            elif value is not None:
                try:
                    data[key] = _validated(known.get(key), value, context)
                except ValidationError as error:
                    yield from explained(error, known.get(key, Conf), (key,))

    @classmethod
    def _add_own_block(cls, block: type[Conf], data: dict[str, Any], name: str) -> Iterator[InitErrorDetails]:
        """Add the block of the type with its defaults, if a job may leave it out."""
        needed = required_keys(block)
        if needed or block.must_be_given:
            with_keys = f"with {', '.join(needed)}, " if needed else ""
            message = f"{plain_name(name)} needs this block, {with_keys}and it is missing."
            yield problem(PLAIN, message, (block.block_key,), data)
        else:
            data[block.block_key] = block()

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave out blocks of defaults that the job has not given, where only what is set is asked for."""
        values: dict[str, Any] = handler(self)
        added = self.blocks.keys() - self.model_fields_set if info.exclude_unset else ()
        return {key: value for key, value in values.items() if key not in added}

    @property
    def blocks(self) -> dict[str, Any]:
        """The blocks that are there, by key."""
        return {key: value for key, value in (self.model_extra or {}).items() if value is not None}

    def with_block(self: P, block: Conf) -> P:
        """Return a copy with another block of this kind."""
        return self.model_copy(update={block.block_key: block})

    def given_block(self, kind: type[B]) -> B | None:
        """Return the block of a kind, None where there is none.

        Raises
        ------
        ConfigError
            It was read without registries, and is not valid.
        """
        value = (self.model_extra or {}).get(kind.block_key)
        if value is None or isinstance(value, kind):
            return value
        try:
            block: B = _validated(kind, value, {})
        except ValidationError as error:
            errors = error.errors(include_url=False)
            raise ConfigError([Problem((kind.block_key, *each["loc"]), each["msg"]) for each in errors]) from None
        return block

    def block(self, kind: type[B]) -> B:
        """Return the block of a kind; one of defaults where the job leaves it out and that is possible.

        Raises
        ------
        ConfigError
            The block is missing and has keys without defaults.
        """
        block = self.given_block(kind)
        if block is not None:
            return block
        needed = required_keys(kind)
        if needed:
            message = f"{getattr(self, self.type_key)} needs this block, with {', '.join(needed)}."
            raise ConfigError(Problem((kind.block_key,), message))
        return kind()


def _validated(kind: type[B] | None, value: Any, context: Mapping[str, Any]) -> Any:
    """Validate a block, of which nothing but that it is one is known without a ``kind``.

    A block of another class with the same key is read as its values.
    """
    if kind is None:
        return value if isinstance(value, Mapping | Conf) else Conf.model_validate(value)
    other = isinstance(value, Conf) and not isinstance(value, kind)
    return kind.model_validate(value.model_dump() if other else value, context=dict(context))
