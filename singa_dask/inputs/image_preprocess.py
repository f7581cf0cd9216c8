"""ImagePreprocess: crops, mirrors and scales a batch of images."""

from __future__ import annotations

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, NonNegative
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.feature import Raw
from singa_dask.layers.traits import Traits
from singa_dask.ops.contract import Array


class RGBImageConf(Conf):
    """``rgbimage_conf``: cropping, mirroring and scaling of images (SINGA's RGBImageProto)."""

    scale: NonNegative = 1.0
    """Multiplies each pixel."""
    cropsize: Count = 0
    """Height and width of the crop, at a random place in training, else at the centre; 0 keeps the whole image."""
    mirror: bool = False
    """Mirror half of the training images."""
    pad: Count = 0
    """Number of rows and columns of zeros to add to each side of an image before it is cropped. The zeros are added
    after normalisation."""
    meanfile: str = ""
    """Store whose first record is subtracted; read by the deprecated RGBImage layer only."""


@LAYERS.register()
class ImagePreprocess(Layer):
    """Crop, mirror and scale images x (N, C, H, W): y = ``scale`` x.

    Images are cropped to (N, C, cropsize, cropsize), or stay whole if ``cropsize`` is 0. In training each image is
    cropped at a random position, and ``mirror`` flips half of the images left to right. Otherwise the centre is
    cropped. The random numbers depend only on the seed, the layer, the epoch and the record. So results are the same
    for any number of workers and after a resume. Labels are passed on.

    ``pad`` adds zeros on each side of an image before it is cropped. If ``cropsize`` is the size of the image, training
    then shifts images by up to ``pad`` pixels.

    Notes
    -----
    SINGA crops the top left corner in tests, never mirrors images that it does not crop, and needs H = W.
    """

    options_class = RGBImageConf
    traits = Traits(consumes=(("raw", "labels", "ids"),))

    def setup(self) -> None:
        options, shape = self.options, self.sources[0].shape
        self.scale, self.mirror, self.pad = options.scale, options.mirror, options.pad
        check_axes(self, "images (channels, height, width)", 4)
        if self.sources[0].requires_grad:
            name = self.conf.srclayers[0]
            message = f"{name!r} may learn, but {self.conf.type} has no gradient. Read an input layer instead."
            raise ConfigError(Problem(("srclayers",), message))
        height, width = (size + 2 * self.pad for size in shape[2:])
        if options.cropsize > min(height, width):
            padded = " with their padding" if self.pad else ""
            message = f"expected at most {min(height, width)}, as images are {height} x {width}{padded}, "
            message += f"got {options.cropsize}."
            raise ConfigError(Problem(("rgbimage_conf", "cropsize"), message))
        if options.meanfile:
            message = f"{self.conf.type} subtracts nothing. Set mean_file in store_conf of the input layer."
            raise ConfigError(Problem(("rgbimage_conf", "meanfile"), message))
        size = (options.cropsize, options.cropsize) if options.cropsize else (height, width)
        # maximum offset of the crop, down and to the right
        self.room = np.array([height - size[0], width - size[1]])
        self.add_output((*shape[:2], *size), requires_grad=False)
        if self.pad:
            # the buffer is initialised with zeros, and its border stays zero
            self.padded = self.buffer("padded", (*shape[:2], height, width))

    def forward(self, phase: Phase) -> None:
        source, feature = self.sources[0], self.features[0]
        feature.records = source.records
        raw = source.raw or Raw(source.data)
        if self.pad:
            raw = self.with_zeros(raw)
        top, left, mirrored = self.places(phase)
        self.ops.crop_mirror_normalize(raw.values, top, left, mirrored, raw.mean, raw.std, self.scale, out=feature.data)

    def with_zeros(self, raw: Raw) -> Raw:
        """Return normalised images, padded with zeros."""
        n_rows, _, height, width = self.sources[0].shape
        images = self.padded.data[:, :, self.pad : self.pad + height, self.pad : self.pad + width]
        nowhere = np.zeros(n_rows, np.int64)
        self.ops.crop_mirror_normalize(
            raw.values, nowhere, nowhere, nowhere.astype(bool), raw.mean, raw.std, 1.0, out=images
        )
        return Raw(self.padded.data)

    def places(self, phase: Phase) -> tuple[Array, Array, Array]:
        """Return three arrays (N,): top row and left column of each crop, and whether to mirror it."""
        n_rows = self.features[0].shape[0]
        if not phase & Phase.TRAIN:
            top, left = np.repeat(self.room[:, None] // 2, n_rows, axis=1)
            return top, left, np.zeros(n_rows, bool)
        source, context = self.sources[0], self.context
        ids, epochs = source.records.ids, source.records.epochs
        if ids is None or epochs is None:
            # for records without ids, draw by row and step instead
            ids = self.first_row(n_rows) + np.arange(n_rows)
            epochs = np.full(n_rows, context.step)
        words = self.ops.random_words((context.seed, self.conf_name), ids, epochs)
        top, left = words[:2] * (self.room[:, None] + 1) >> 32
        return top, left, (words[2] >> 31 == 1) & self.mirror
