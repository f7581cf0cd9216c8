"""Names that other programs use for parts and keys, and our names for them."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from singa_dask.wording import hint_at, suggest

INNER_PRODUCT = ("dense", "fc", "fullyconnected", "linear")
MAX_POOLING, AVERAGE_POOLING = (f"Set type: Pooling, with pooling_conf: {{pool: {pool}}}." for pool in ("MAX", "AVG"))
GLOROT = (
    "Leave init out: weights of InnerProduct and Convolution then start so. "
    "Or set type: UniformSqrtFanInOut, low: -2.449, high: 2.449."
)
HE = "Set type: GaussianSqrtFanIn, std: 1.414."

# for each kind of part: another framework's name, in lower case without "_" and "-" -> our name, or advice
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
        "smoothl1loss": "HuberLoss",
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
        "zeros": "Set type: Constant, value: 0.",
        "ones": "Set type: Constant, value: 1.",
    },
    "updater": {"adamax": "AdamMax", "momentum": "Set type: SGD, momentum: 0.9."},
    "schedule": {"constant": "Fixed", "exponentialdecay": "Exponential", "multistep": "FixedStep", "steplr": "Step"},
    "algorithm": {"backprop": "BP", "backpropagation": "BP", "contrastivedivergence": "CD"},
    "store": {"imagefolder": "image-folder"},
}
OWN_LAYER = "An activation is a layer of its own: add one of type ReLU, Sigmoid or Tanh that reads this one."
LOSS = "A loss is a layer: add one of type SoftmaxLoss or EuclideanLoss to neuralnet."
UNITS = "Set it in the layer's block: innerproduct_conf: {num_output: N}, or dim_hidden of a recurrent layer."
# key in another framework -> keys with this meaning here, and advice where a job may have none of these keys
KEYS: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(
        ("lr", "learningrate"),
        (("base_lr", "learning_rate"), "Set it in updater: {learning_rate: {type: Fixed, base_lr: 0.01}}."),
    ),
    "layers": (("layer",), "Set neuralnet: {layer: [...]}."),
    **dict.fromkeys(
        ("epoch", "epochs", "maxepochs", "nepochs", "numepochs", "numtrainepochs"),
        (("epochs",), "Set it at the top of the job: epochs: 20."),
    ),
    **dict.fromkeys(("iterations", "maxiter", "maxsteps", "steps"), (("train_steps",), "")),
    **dict.fromkeys(("batch", "batchsize"), (("batchsize",), "Set it in the store_conf of the input layers.")),
    **dict.fromkeys(("optimiser", "optimizer", "solver"), (("updater",), "")),
    **dict.fromkeys(("model", "net", "network"), (("neuralnet",), "")),
    **dict.fromkeys(("criterion", "loss"), ((), LOSS)),
    **dict.fromkeys(("hiddensize", "numunits", "outfeatures", "units"), (("num_output", "dim_hidden"), UNITS)),
    **dict.fromkeys(("filters", "outchannels"), (("num_filters",), "Set convolution_conf: {num_filters: N}.")),
    **dict.fromkeys(("kernelsize", "poolsize"), (("kernel",), "Set it in the layer's block: kernel.")),
    "strides": (("stride",), "Set it in the layer's block: stride."),
    "padding": (("pad",), "Set it in the layer's block: pad."),
    "activation": ((), OWN_LAYER),
    **dict.fromkeys(("bottom", "input", "inputs", "source"), (("srclayers",), "")),
    "phase": (("include",), ""),
    **dict.fromkeys(("dropout", "rate"), (("dropout_ratio",), "")),
    **dict.fromkeys(("embeddingdim", "outputdim"), (("feature_dim",), "")),
    **dict.fromkeys(("bias", "usebias"), (("bias_term",), "Set it in the layer's block: bias_term.")),
    **dict.fromkeys(("initializer", "kernelinitializer", "weightfiller"), (("init",), "Set it as param: {init: ...}.")),
    **dict.fromkeys(("params", "weights"), (("param",), "")),
    **dict.fromkeys(("nworkers", "numworkers", "workers"), (("nworkers_per_group",), "Set it in cluster.")),
    **dict.fromkeys(("cuda", "device", "gpus"), (("gpu",), "")),
    **dict.fromkeys(("display", "logfreq"), (("disp_freq",), "")),
}
# class of a block -> its full form, shown if a job has a number or a name in its place
WRITTEN_OUT = {
    "LRGenConf": ("learning_rate: {{type: Fixed, base_lr: {}}}", "learning_rate: {{type: {}}}"),
    "UpdaterConf": ("", "updater: {{type: {}, learning_rate: {{type: Fixed, base_lr: 0.01}}}}"),
    "InitConf": ("init: {{type: Constant, value: {}}}", "init: {{type: {}}}"),
    "AlgConf": ("", "train_one_batch: {{alg: {}}}"),
}


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def suggest_part(kind: str, name: str, known: Collection[str]) -> str:
    """Suggest the intended name for an unknown part, and list known names; ``kind`` as in `load`."""
    hint = PARTS.get(kind, {}).get(_folded(name), "")
    if hint in known:
        return hint_at(f"Did you mean {hint!r}?", known)
    return hint_at(hint, known) if hint.endswith(".") else suggest(name, known)


def suggest_key(name: str, known: Collection[str]) -> str:
    """Suggest the intended key for an unknown key, and list the known keys."""
    folded = _folded(name)
    if folded not in KEYS:  # the key may be a mistyped name of another program
        foreign = [other for other, (keys, _) in KEYS.items() if {*keys} & {*known}]
        close = get_close_matches(folded, [*map(_folded, known), *foreign], n=1, cutoff=0.8)
        folded = close[0] if close and close[0] not in map(_folded, known) else folded
    keys, hint = KEYS.get(folded, ((), ""))
    meant = next((key for key in keys if key in known), None)
    if meant:
        return hint_at(f"Did you mean {meant!r}?", known)
    return hint_at(hint, known) if hint else suggest(name, known)


def written_out(block: str, value: object) -> str:
    """Return advice on the block to write in place of a single value; empty if unknown."""
    number, name = WRITTEN_OUT.get(block, ("", ""))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    form = number if is_number else name if isinstance(value, str) and value.isidentifier() else ""
    return f" Write {form.format(value)}." if form else ""
