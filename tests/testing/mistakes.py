"""What is said of each of the wrong layers."""

from __future__ import annotations

from typing import Any, NamedTuple

from singa_dask.layers import Layer
from tests.testing.wrong_in_nets import (
    BufferOfTraining,
    ChangesLabels,
    FalseCapturable,
    FalseForwards,
    Float64,
    GradientInFloat32,
    IgnoresTimeSteps,
    KeepsParam,
    ReadsDataInSetup,
    SharedCache,
)
from tests.testing.wrong_layers import (
    AddsToParam,
    AddsToSource,
    Aliased,
    AliasedGrad,
    ByPosition,
    Centred,
    ChangesParam,
    Doubled,
    FalseAccumulates,
    FalseFeatureParallel,
    FalseFuses,
    FalseOverwritable,
    FalseTimeFoldable,
    Float32,
    Float32Buffer,
    ForgottenParam,
    ForgottenSource,
    ForwardOnly,
    HalfWritten,
    HiddenState,
    LossOfTheSum,
    LossWithoutMetric,
    MeanOverRows,
    NoGradientExpected,
    ParamNeverAdded,
    ParamOfItsOwn,
    Random,
    RandomWeights,
    ReboundOutput,
    ReboundParamGrad,
    ReboundSourceGrad,
    SecondSourceForgotten,
    StaleCopy,
    UnnamedMetric,
    UnnamedParam,
    UnstatedData,
    UnstatedLabels,
    WritesIntoSource,
    WritesIntoSourceBackward,
    WrongShape,
    WrongShapeOfGradient,
    WrongSign,
)

__all__ = ["WRONG", "Wrong"]

ROWS = [(4, 3)]


class Wrong(NamedTuple):
    """A wrong layer.

    Attributes
    ----------
    cls : type of Layer
    says : str
        A part of what the exam says.
    watched : str
        A part of what ``debug: true`` says, or what is said before anything runs; empty if that does not find it.
    more : dict
        Of `check_layer`.
    """

    cls: type[Layer]
    says: str
    watched: str = ""
    more: dict[str, Any] = {"shapes": ROWS}  # noqa: RUF012


LABELS = {"shapes": [(4, 3), (4,)], "labels": [0, 2, 1, 2], "fixed": 1}
REBOUND = "Write into its memory: grad[...] = ..."
NOT_OVERWRITTEN = (
    "does not overwrite the gradient of {}: some of it is not written, or added to earlier values. Write all"
)
SOURCE, GAIN = (NOT_OVERWRITTEN.format(f"{name}") for name in ("source 'src0'", "param 'layer.gain'"))

WRONG = [
    Wrong(ForgottenSource, SOURCE, SOURCE.replace("src0", "fc1")),
    Wrong(ForgottenParam, GAIN, GAIN.replace("layer", "tested")),
    Wrong(HalfWritten, "forward() does not overwrite output 0", "forward() does not overwrite output 0"),
    Wrong(Doubled, "All values are 2 times the expected ones. The expected value is the slope of forward()"),
    Wrong(MeanOverRows, "All values are 0.25 times the expected ones"),
    Wrong(WrongSign, "All values are -1 times the expected ones"),
    Wrong(ReboundSourceGrad, REBOUND, REBOUND),
    Wrong(ReboundParamGrad, REBOUND, REBOUND),
    Wrong(ReboundOutput, "Write into its memory: data[...] = ...", "Write into its memory: data[...] = ..."),
    Wrong(Aliased, "Write into its memory: data[...] = ...", "Write into its memory: data[...] = ..."),
    Wrong(AliasedGrad, REBOUND, REBOUND),
    Wrong(AddsToSource, SOURCE, SOURCE.replace("src0", "fc1")),
    Wrong(AddsToParam, GAIN, GAIN.replace("layer", "tested")),
    Wrong(
        FalseAccumulates,
        "the gradient of param 'layer.gain' is not added to its earlier values. Add if phase.accumulates",
    ),
    Wrong(FalseOverwritable, "Leave overwritable=True out of add_output", "Leave overwritable=True out of add_output"),
    Wrong(Centred, "In a test, compute each row only from that row"),
    Wrong(FalseTimeFoldable, "take time_foldable out of its speed"),
    Wrong(FalseFuses, "Correct it, or remove 'relu' from fuses"),
    Wrong(FalseFeatureParallel, "remove feature_parallel from its speed"),
    Wrong(UnnamedMetric, "forward() adds the metrics ('largest',), but the traits name (). Name the added"),
    Wrong(UnstatedLabels, "declare that it consumes them? See Traits.consumes", more=LABELS),
    Wrong(UnstatedData, "Does its reader declare that it consumes data? See Traits", more=LABELS),
    Wrong(LossOfTheSum, "All values are 4 times the expected ones", more=LABELS),
    Wrong(LossWithoutMetric, "a loss must add the value that it differentiates, by add_metric", more=LABELS),
    Wrong(Float32, "output 0 is float32 in a net of float64. Leave dtype out"),
    Wrong(Float32Buffer, "buffer 'product' is float32 in a net of float64. Leave dtype out"),
    Wrong(WrongShape, "wrong_layers.py:"),
    Wrong(WrongShapeOfGradient, "could not broadcast"),
    Wrong(HiddenState, "keep what lasts as self.state, or in a param"),
    Wrong(StaleCopy, "keep what lasts as self.state, or in a param"),
    Wrong(WritesIntoSource, "writes into the data of source 'src0'", "writes into the data of source 'fc1'"),
    Wrong(
        WritesIntoSourceBackward,
        "backward() writes into the data of source 'src0'",
        "of source 'fc1', which other layers",
    ),
    Wrong(Random, "Draw random numbers by self.random_key"),
    Wrong(RandomWeights, "in another process"),
    Wrong(ByPosition, "of the same record in another row of a test"),
    Wrong(ParamNeverAdded, "name the param 'gain', which setup() does not add", "which setup() does not add"),
    Wrong(ParamOfItsOwn, "self.shift is a Param that nobody updates", "self.shift is a Param that nobody updates"),
    Wrong(UnnamedParam, "adds a param that its traits do not name", "adds a param that its traits do not name"),
    Wrong(ChangesParam, "Only updaters change params"),
    Wrong(ForwardOnly, "there is no backward()", "ForwardOnly has no backward(), so 'fc1' and the layers before it"),
    Wrong(NoGradientExpected, "The gradient of a source may be None: write it if source.grad is not None"),
    Wrong(
        ChangesLabels,
        "writes into the labels of source 'src1', which other layers read",
        "writes into the labels of source 'data'",
        LABELS,
    ),
    Wrong(IgnoresTimeSteps, "Multiply the gradients of the mean over all rows by self.site.n_steps", more=LABELS),
    Wrong(SharedCache, "Keep what belongs to a layer in self, not in its class or module"),
    Wrong(GradientInFloat32, "Compute gradients in the dtype of their memory, and clip or round nothing"),
    Wrong(Float64, "output 0 is float64 in a net of float32. Leave dtype out"),
    Wrong(FalseForwards, 'forwards names "labels", but output 0 has no labels. Set output.records = source.records'),
    Wrong(FalseCapturable, "Read self.context.step in prepare(), or take capturable out of its speed"),
    Wrong(BufferOfTraining, "it has no memory, as it is only for backward. See Layer.buffer"),
    Wrong(KeepsParam, "has no values. Set or draw them first", "has no values"),
    Wrong(ReadsDataInSetup, "has no data. In setup() no feature has", "has no data. In setup() no feature has"),
    Wrong(SecondSourceForgotten, "does not overwrite the gradient of source 'src1'", more={"shapes": [(4, 3)] * 2}),
]
