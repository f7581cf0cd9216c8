"""Random nets, each with its function in PyTorch, written from the definitions and not from what the export makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers import RecordIds
from tests.net.feed import Feed
from tests.net.jobs import UNIFORM

__all__ = ["Drawn", "RandomNet", "values_of"]

N = 6
VOCAB = 7
ACTIVATIONS = ["ReLU", "Sigmoid", "Tanh", "STanh", "SiLU", "GELU", "LeakyReLU", "Activation", "Softmax"]


def values_of(conf: dict[str, Any], position: int) -> tuple[Any, Any]:
    """Return the records and the labels of a batch of `Drawn`."""
    random, kind = np.random.default_rng((conf["seed"], position)), conf.get("kind", "normal")
    shape = conf["shape"]
    drawn = {
        "normal": lambda: random.normal(size=shape),
        "integers": lambda: random.integers(0, conf["below"], shape),
        "uniform": lambda: random.uniform(size=shape),
    }[kind]()
    return drawn, random.integers(0, conf.get("classes", 2), shape[0])


class Drawn(Feed):
    """Records of ``user_conf.shape``: normal, ``integers`` below a bound, or ``uniform`` in [0, 1)."""

    def setup(self) -> None:
        conf = self.conf.user_conf
        (n_rows, *rest), dtype = conf["shape"], np.int32 if conf.get("numbers") else None
        self.position, self.n_rows = 0, n_rows
        self.add_output((n_rows // self.site.batch_shard.count, *rest), requires_grad=False, dtype=dtype)

    def compute_feature(self, phase: Phase) -> None:
        values, labels = values_of(self.conf.user_conf, self.position)
        self.position += 1
        n_rows, feature = self.features[0].shape[0], self.features[0]
        rows = slice(self.first_row(n_rows), self.first_row(n_rows) + n_rows)
        self.ops.copy(values[rows].astype(feature.dtype), out=feature.data)
        feature.records = RecordIds(self.ops.labels(labels[rows], feature.records.labels))


class Formula(NamedTuple):
    """What a layer computes: its sources, and a function of its params and of what they give."""

    sources: Sequence[str]
    function: Callable[..., Any]


class RandomNet:
    """A net that is valid as it is grown, and what its layers compute in PyTorch.

    Attributes
    ----------
    layers : list of dict
        As a job file has them.
    losses : list of str
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.seed = seed
        self.layers: list[dict[str, Any]] = []
        self.formulas: dict[str, Formula] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.steps: dict[str, int] = {}
        self.losses: list[str] = []
        self.weights: dict[tuple[int, int, int], str] = {}
        [self.images, self.rows, self.sequences][seed % 3]()

    @property
    def kinds(self) -> set[str]:
        """Types of the layers."""
        return {each["type"] for each in self.layers}

    # -- draws -----------------------------------------------------------------------------------------------

    def draw(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def of(self, values: Sequence[Any]) -> Any:
        return values[self.draw(0, len(values) - 1)]

    def yes(self) -> bool:
        return bool(self.draw(0, 1))

    def number(self, low: float, high: float) -> float:
        return round(float(self.random.uniform(low, high)), 3)

    # -- growth ----------------------------------------------------------------------------------------------

    def add(
        self,
        kind: str,
        sources: Sequence[str],
        shape: tuple[int, ...],
        function: Callable[..., Any],
        n_params: int = 0,
        n_steps: int | None = None,
        **conf: Any,
    ) -> str:
        """Add a layer; ``function`` takes its params and what its sources give."""
        name = f"{kind.lower()}{len(self.layers)}"
        n_steps = n_steps or self.steps[sources[0]]
        params = [{"name": f"{name}.{k}", "init": UNIFORM} for k in range(n_params)]
        made = {"name": name, "type": kind, "srclayers": [*sources], "unroll_len": n_steps, **conf}
        self.layers.append({**made, **({"param": params} if params else {})})
        self.formulas[name] = Formula(sources, function)
        self.shapes[name], self.steps[name] = shape, n_steps
        return name

    def feed(self, shape: Sequence[int], **conf: Any) -> str:
        name = f"data{len(self.layers)}"
        conf = {"shape": [N, *shape], "seed": self.seed * 100 + len(self.layers), **conf}
        self.layers.append({"name": name, "type": "Drawn", "unroll_len": 1, "user_conf": conf})
        self.shapes[name], self.steps[name] = tuple(shape), 1
        return name

    def activation(self, x: str) -> str:
        import torch

        functional: Any = torch.nn.functional
        kind, slope = self.of(ACTIVATIONS), self.number(0.05, 0.5)
        conf: dict[str, Any] = {}
        function = {
            "ReLU": torch.relu,
            "Sigmoid": torch.sigmoid,
            "Tanh": torch.tanh,
            "STanh": lambda x: 1.7159047 * torch.tanh(0.66666667 * x),
            "SiLU": functional.silu,
            "GELU": functional.gelu,
            "LeakyReLU": lambda x: functional.leaky_relu(x, slope),
            "Activation": torch.sigmoid,
            "Softmax": lambda x: torch.softmax(x, 1),
        }[kind]
        if kind == "ReLU" and self.yes():
            conf, function = {"relu_conf": {"negative_slope": slope}}, lambda x: functional.leaky_relu(x, slope)
        elif kind == "GELU" and self.yes():
            conf, function = {"gelu_conf": {"approximate": "tanh"}}, lambda x: functional.gelu(x, approximate="tanh")
        elif kind == "LeakyReLU":
            conf = {"leakyrelu_conf": {"negative_slope": slope}}
        elif kind == "Activation":
            conf = {"activation_conf": {"type": "SIGMOID"}}
        elif kind == "Softmax" and len(self.shapes[x]) > 1:
            return x
        return self.add(kind, [x], self.shapes[x], lambda _, x: function(x), **conf)

    def dense(self, x: str, width: int, share: bool = True) -> str:
        """Add an inner product, sometimes with the weights of another one."""
        size = int(np.prod(self.shapes[x]))
        bias, transpose = self.yes(), self.yes()
        block = {"num_output": width, "bias_term": bias, "transpose": transpose}

        def function(params: Any, x: Any) -> Any:
            w = params[0] if transpose else params[0].T
            return x.flatten(1) @ w + (params[1] if bias else 0)

        name = self.add("InnerProduct", [x], (width,), function, 1 + bias, innerproduct_conf=block)
        sizes = (size, width, int(transpose))
        if share and sizes in self.weights and self.yes():
            shared = {"name": f"{name}.0", "share_from": self.weights[sizes]}
            self.layers[-1]["param"][0] = {**shared, "share_gradient": self.of(["sum", "average"])}
        self.weights.setdefault(sizes, f"{name}.0")
        return name

    def residual(self, x: str, grow: Callable[[str], str]) -> str:
        """Combine a layer with one that reads it, where they have one shape."""
        y = grow(x)
        if self.shapes[x] != self.shapes[y] or x == y or self.steps[x] != self.steps[y]:
            return y
        if self.yes():
            return self.add("Add", [x, y], self.shapes[x], lambda _, x, y: x + y)
        return self.add("Multiply", [x, y], self.shapes[x], lambda _, x, y: x * y)

    def joined(self, x: str, grow: Callable[[str], str]) -> str:
        """Join a layer with one that reads it, along axis 1."""
        import torch

        y = grow(x)
        one, other = self.shapes[x], self.shapes[y]
        if one[1:] != other[1:] or x == y or self.steps[x] != self.steps[y]:
            return y
        shape = (one[0] + other[0], *one[1:])
        block = {"concate_dim": 1}
        return self.add("Concate", [y, x], shape, lambda _, y, x: torch.cat([y, x], 1), concate_conf=block)

    def cut(self, x: str) -> str:
        """Cut a layer along axis 1, and join the pieces the other way round."""
        import torch

        shape, n_steps = self.shapes[x], self.steps[x]
        if shape[0] < 2 or n_steps > 1:
            return x
        first = shape[0] // 2
        cut = self.add("Slice", [x], shape, lambda _, x: x, slice_conf={"slice_dim": 1, "num_slices": 2})
        one = self.add("Tanh", [cut], (first, *shape[1:]), lambda _, x: torch.tanh(x[:, :first]))
        two = self.add("Sigmoid", [cut], (shape[0] - first, *shape[1:]), lambda _, x: torch.sigmoid(x[:, first:]))
        block = {"concate_dim": 1}
        return self.add("Concate", [two, one], shape, lambda _, y, x: torch.cat([y, x], 1), concate_conf=block)

    # -- images ----------------------------------------------------------------------------------------------

    def images(self) -> None:
        x = self.feed((self.of([2, 4]), self.draw(4, 7), self.draw(4, 7)), classes=3)
        data = x
        x = self.convolution(x)
        for _ in range(self.draw(2, 5)):
            x = self.of([self.image_layer, self.image_layer, self.activation, self.branch, self.cut])(x)
        if self.draw(0, 3) == 0:
            self.pixel_loss(x)
            return
        if self.yes():
            x = self.global_pooling(x)
        elif self.yes() and min(self.shapes[x][1:]) > 1:
            x = self.moved(x)
        self.end(x, data)

    def branch(self, x: str) -> str:
        return self.of([self.residual, self.joined])(x, self.of([self.same_convolution, self.activation, self.norm]))

    def image_layer(self, x: str) -> str:
        choices = [self.convolution, self.transposed, self.upsample, self.pool, self.adaptive, self.norm, self.lrn]
        return self.of(choices)(x)

    def window(self, x: str, least: int = 1) -> dict[str, int]:
        """Return the keys of a window that fits."""
        block = {}
        for axis, size in zip("yx", self.shapes[x][1:], strict=True):
            block[f"kernel_{axis}"] = kernel = self.draw(least, min(3, size))
            block[f"stride_{axis}"], block[f"pad_{axis}"] = self.draw(1, 2), self.draw(0, kernel // 2)
        return block

    @staticmethod
    def pairs(block: dict[str, int], *keys: str) -> list[tuple[int, int]]:
        return [(block[f"{key}_y"], block[f"{key}_x"]) for key in keys]

    def filtered(self, x: str, block: dict[str, Any]) -> str:
        import torch

        functional: Any = torch.nn.functional
        channels, bias = self.shapes[x][0], self.yes()
        groups = self.of([n for n in (1, 2, channels) if not channels % n])
        filters = groups * self.draw(1, 2)
        kernel, stride, pad = self.pairs(block, "kernel", "stride", "pad")
        dilation = [
            self.draw(1, 2) if 2 * (k - 1) + 1 <= n + 2 * p else 1
            for k, n, p in zip(kernel, self.shapes[x][1:], pad, strict=True)
        ]
        block |= {"num_filters": filters, "groups": groups, "bias_term": bias}
        block |= {"dilation_y": dilation[0], "dilation_x": dilation[1]}
        if "same" in block:
            del block["same"]
            dilation = [1, 1]
            block |= {"dilation_y": 1, "dilation_x": 1, "num_filters": channels}
            filters = channels
        size = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(self.shapes[x][1:], pad, dilation, kernel, stride, strict=True)
        ]

        def function(params: Any, x: Any) -> Any:
            w = params[0].reshape(filters, -1, *kernel)
            return functional.conv2d(x, w, params[1] if bias else None, stride, pad, tuple(dilation), groups)

        return self.add("Convolution", [x], (filters, *size), function, 1 + bias, convolution_conf=block)

    def convolution(self, x: str) -> str:
        return self.filtered(x, self.window(x))

    def same_convolution(self, x: str) -> str:
        block: dict[str, Any] = {"same": True}
        for axis in "yx":
            block |= {f"kernel_{axis}": 3, f"stride_{axis}": 1, f"pad_{axis}": 1}
        return self.filtered(x, block)

    def transposed(self, x: str) -> str:
        import torch

        functional: Any = torch.nn.functional
        channels, height, width = self.shapes[x]
        if max(height, width) > 7:
            return self.pool(x)
        groups = self.of([n for n in (1, 2, channels) if not channels % n])
        filters, kernel, stride = groups * self.draw(1, 2), self.draw(1, 3), self.draw(1, 2)
        pad = self.draw(0, 1 if kernel > 1 and min(height, width) > 2 else 0)
        more, dilation, bias = self.draw(0, stride - 1), self.draw(1, 2), self.yes()
        block = {"num_filters": filters, "kernel": kernel, "stride": stride, "pad": pad, "groups": groups}
        block |= {"output_pad": more, "dilation": dilation, "bias_term": bias}
        size = [(n - 1) * stride + dilation * (kernel - 1) + 1 - 2 * pad + more for n in (height, width)]

        def function(params: Any, x: Any) -> Any:
            w = params[0].reshape(channels, -1, kernel, kernel)
            b = params[1] if bias else None
            return functional.conv_transpose2d(x, w, b, stride, pad, more, groups, dilation)

        return self.add("ConvTranspose", [x], (filters, *size), function, 1 + bias, convtranspose_conf=block)

    def upsample(self, x: str) -> str:
        import torch

        channels, height, width = self.shapes[x]
        if max(height, width) > 5:
            return self.adaptive(x)
        factor, mode = self.draw(1, 3), self.of(["nearest", "bilinear"])
        block = {"factor": factor, "mode": mode.upper()}
        scale = torch.nn.Upsample(scale_factor=factor, mode=mode)
        shape = (channels, height * factor, width * factor)
        return self.add("Upsample", [x], shape, lambda _, x: scale(x), upsample_conf=block)

    def pool(self, x: str) -> str:
        import torch

        functional: Any = torch.nn.functional
        block: dict[str, Any] = self.window(x)
        kernel, stride, pad = self.pairs(block, "kernel", "stride", "pad")
        size = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(self.shapes[x][1:], pad, kernel, stride, strict=True)]
        if self.yes():
            block |= {"pool": "MAX"}
            function: Callable[..., Any] = lambda _, x: functional.max_pool2d(x, kernel, stride, pad)  # noqa: E731
        else:
            counts = self.yes()
            block |= {"pool": "AVG", "count_include_pad": counts}
            function = lambda _, x: functional.avg_pool2d(x, kernel, stride, pad, count_include_pad=counts)  # noqa: E731
        return self.add("Pooling", [x], (self.shapes[x][0], *size), function, pooling_conf=block)

    def adaptive(self, x: str) -> str:
        import torch

        channels, height, width = self.shapes[x]
        size, pool = (self.draw(1, height), self.draw(1, width)), self.of(["max", "avg"])
        block = {"height": size[0], "width": size[1], "pool": pool.upper()}
        function = getattr(torch.nn.functional, f"adaptive_{pool}_pool2d")
        name = self.add(
            "AdaptivePooling", [x], (channels, *size), lambda _, x: function(x, size), adaptivepooling_conf=block
        )
        return name

    def global_pooling(self, x: str) -> str:
        pool = self.of(["MAX", "AVG"])
        function = {"MAX": lambda _, x: x.flatten(2).max(2)[0], "AVG": lambda _, x: x.mean((2, 3))}[pool]
        return self.add("GlobalPooling", [x], self.shapes[x][:1], function, globalpooling_conf={"pool": pool})

    def norm(self, x: str) -> str:
        """Normalise over the batch, or over groups of channels."""
        shape, epsilon = self.shapes[x], self.number(0.05, 0.2)
        per_channel = (1, -1, 1, 1) if len(shape) == 3 else (1, -1)
        if self.yes():
            over = (0, 2, 3) if len(shape) == 3 else (0,)

            def function(params: Any, x: Any) -> Any:
                mean, variance = x.mean(over, keepdim=True), x.var(over, correction=0, keepdim=True)
                scale, shift = (p.reshape(per_channel) for p in params[:2])
                return scale * (x - mean) / (variance + epsilon).sqrt() + shift

            return self.add("BatchNorm", [x], shape, function, 4, bm_conf={"epsilon": epsilon})
        if len(shape) < 3:
            return self.row_norm(x)
        groups = self.of([n for n in (1, 2, shape[0]) if not shape[0] % n])

        def by_group(params: Any, x: Any) -> Any:
            parts = x.reshape(len(x), groups, -1)
            mean, variance = parts.mean(2, keepdim=True), parts.var(2, correction=0, keepdim=True)
            y = ((parts - mean) / (variance + epsilon).sqrt()).reshape(x.shape)
            return params[0].reshape(per_channel) * y + params[1].reshape(per_channel)

        block = {"num_groups": groups, "epsilon": epsilon}
        return self.add("GroupNorm", [x], shape, by_group, 2, groupnorm_conf=block)

    def lrn(self, x: str) -> str:
        import torch

        size, alpha, beta, knorm = self.of([3, 5]), self.number(0.1, 2), self.number(0.5, 1), self.number(1, 2)
        block = {"local_size": size, "alpha": alpha, "beta": beta, "knorm": knorm}

        def function(_: Any, x: Any) -> Any:
            half = size // 2
            around = torch.nn.functional.pad(x**2, (0, 0, 0, 0, half, half))
            total = sum(around[:, k : k + x.shape[1]] for k in range(size))
            return x / (knorm + alpha / size * total) ** beta

        return self.add("LRN", [x], self.shapes[x], function, lrn_conf=block)

    def moved(self, x: str) -> str:
        """Change axes."""
        shape = self.shapes[x]
        if self.yes():
            axes = self.of([(1, 2), (1, 3), (2, 3)])
            order = list(shape)
            order[axes[0] - 1], order[axes[1] - 1] = order[axes[1] - 1], order[axes[0] - 1]
            block = {"axes": list(axes)}
            return self.add("Transpose", [x], tuple(order), lambda _, x: x.transpose(*axes), transpose_conf=block)
        wanted = (shape[0] * shape[1], shape[2])
        function = lambda _, x: x.reshape(-1, *wanted)  # noqa: E731
        return self.add("Reshape", [x], wanted, function, reshape_conf={"shape": [-1, shape[2]]})

    # -- rows ------------------------------------------------------------------------------------------------

    def rows(self) -> None:
        x = data = self.feed((self.draw(2, 6),), classes=3)
        x = self.dense(x, self.draw(3, 5))
        for _ in range(self.draw(2, 6)):
            x = self.row_layer(x)
        for _ in range(self.draw(1, 2)):
            self.end(x, data)

    def row_layer(self, x: str) -> str:
        wide = lambda x: self.dense(x, self.shapes[x][0])  # noqa: E731
        match self.draw(0, 6):
            case 0 | 1:
                return self.dense(x, self.draw(3, 5))
            case 2:
                return self.activation(x)
            case 3:
                return self.of([self.norm, self.row_norm])(x)
            case 4:
                return self.residual(x, self.of([wide, self.activation, self.row_norm]))
            case 5:
                return self.joined(x, self.of([wide, self.activation]))
            case _:
                return self.cut(x)

    def row_norm(self, x: str) -> str:
        epsilon, shape = self.number(0.05, 0.2), self.shapes[x]
        if len(shape) > 1:
            return x

        def layer_norm(params: Any, x: Any) -> Any:
            mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
            return params[0] * (x - mean) / (variance + epsilon).sqrt() + params[1]

        def rms_norm(params: Any, x: Any) -> Any:
            return params[0] * x / ((x**2).mean(1, keepdim=True) + epsilon).sqrt()

        if self.yes():
            return self.add("LayerNorm", [x], shape, layer_norm, 2, layernorm_conf={"epsilon": epsilon})
        return self.add("RMSNorm", [x], shape, rms_norm, 1, rmsnorm_conf={"epsilon": epsilon})

    # -- sequences -------------------------------------------------------------------------------------------

    def sequences(self) -> None:
        from tests.oracles.sequences import grow

        grow(self)

    # -- losses ----------------------------------------------------------------------------------------------

    def dropout(self, x: str) -> str:
        return self.add("Dropout", [x], self.shapes[x], lambda _, x: x, dropout_conf={"dropout_ratio": 0.0})

    def end(self, x: str, data: str, labels: str = "") -> None:
        """Add a loss; ``data`` has the labels of its records, or a layer ``labels`` those of all time steps."""
        x = self.dropout(x) if self.draw(0, 3) == 0 else x
        weights = [self.feed((1,), kind="uniform")] if self.yes() and self.steps[x] == 1 else []
        kind = "softmax" if labels else self.of(["softmax", "softmax", "sigmoid", "euclidean"])
        if kind == "softmax":
            n_classes = VOCAB if labels else 3
            x = self.dense(x, n_classes)
            block, function = self.softmax_loss(n_classes)
            self.loss("SoftmaxLoss", [x, labels or data, *weights], function, softmaxloss_conf=block)
            return
        x = self.dense(x, 2)
        if kind == "euclidean":
            target = self.feed((2,))
            self.loss("EuclideanLoss", [x, target, *weights], euclidean)
        else:
            target = self.feed((2,), kind="uniform")
            self.loss("SigmoidCrossEntropyLoss", [x, target, *weights], sigmoid)

    def loss(self, kind: str, sources: Sequence[str], function: Callable[..., Any], **conf: Any) -> None:
        self.losses.append(self.add(kind, sources, (), function, **conf))

    def softmax_loss(self, n_classes: int) -> tuple[dict[str, Any], Callable[..., Any]]:
        """Return the keys of a loss, and its function of scores (rows, classes), labels and weights."""
        import torch

        block: dict[str, Any] = {"scale": self.number(0.5, 2)}
        if self.yes():
            block["ignore_index"] = self.draw(0, n_classes - 1)
        if self.yes():
            block["class_weights"] = [self.number(0.2, 2) for _ in range(n_classes)]
        match self.draw(0, 2):
            case 0:
                block["focal_gamma"] = self.number(0.5, 3)
            case 1:
                block["label_smoothing"] = self.number(0.1, 0.4)

        def function(_: Any, x: Any, labels: Any, *weights: Any) -> Any:
            x, labels = x.flatten(1), labels.reshape(-1).long()
            target = torch.nn.functional.one_hot(labels, n_classes).double()
            smooth = block.get("label_smoothing", 0.0)
            log_p = x - x.logsumexp(1, keepdim=True)
            own = (target * log_p).sum(1)
            rows = -((1 - smooth) * own + smooth * log_p.mean(1)) * (1 - own.exp()) ** block.get("focal_gamma", 0.0)
            counts = torch.tensor(block.get("class_weights", [1.0] * n_classes), dtype=torch.float64)[labels]
            counts = counts * (labels != block.get("ignore_index", -5))
            each = weights[0].reshape(-1) if weights else 1.0
            total = (counts * each * rows).sum()
            value = block["scale"] * total / counts.sum() if counts.sum() else 0 * total
            return value, value

        return block, function

    def pixel_loss(self, x: str) -> None:
        channels, height, width = self.shapes[x]
        labels = self.feed((height * width,), kind="integers", below=channels)
        block, function = self.softmax_loss(channels)

        def by_pixel(_: Any, x: Any, labels: Any) -> Any:
            return function(_, x.permute(0, 2, 3, 1).reshape(-1, channels), labels)

        self.loss("PixelSoftmaxLoss", [x, labels], by_pixel, pixelsoftmaxloss_conf=block)

    # -- PyTorch -----------------------------------------------------------------------------------------------

    def compute(self, params: Callable[[str], list[Any]], position: int) -> tuple[Any, Any]:
        """Return the sum of the losses that are shown, and of those whose gradient is taken, of a batch."""
        import torch

        given: dict[str, Any] = {}
        labels: dict[str, Any] = {}
        for each in self.layers:
            name = each["name"]
            if name not in self.formulas:
                values, own = values_of(each["user_conf"], position)
                given[name], labels[name] = torch.tensor(values).double(), torch.tensor(own)
                continue
            sources = self.formulas[name].sources
            reads = [given[source] for source in sources]
            if each["type"] == "SoftmaxLoss" and sources[1] in labels:
                reads[1] = labels[sources[1]]
            given[name] = self.formulas[name].function(params(name), *reads)
        shown = sum(given[name][0] for name in self.losses)
        return shown, sum(given[name][1] * self.steps[name] for name in self.losses)


def euclidean(_: Any, x: Any, t: Any, *weights: Any) -> Any:
    rows = ((x.flatten(1) - t.flatten(1)) ** 2).sum(1)
    value = (rows * (weights[0].reshape(-1) if weights else 1)).mean()
    return value, value / 2


def sigmoid(_: Any, x: Any, t: Any, *weights: Any) -> Any:
    import torch

    x, t = x.flatten(1), t.flatten(1)
    rows = (-t * torch.sigmoid(x).log() - (1 - t) * torch.sigmoid(-x).log()).mean(1)
    value = (rows * (weights[0].reshape(-1) if weights else 1)).mean()
    return value, value
