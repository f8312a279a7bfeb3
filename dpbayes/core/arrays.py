"""Types of arrays, under the names that annotations use."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vector = NDArray[np.float64]  # shape (n,), one number per record
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
