"""BFLOAT16: the dtype of 16-bit floats with the exponent of float32."""

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
