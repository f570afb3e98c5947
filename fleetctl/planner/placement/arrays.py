"""The names of NumPy arrays in placement: amounts and numbers are whole, only what a relaxation says is not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
