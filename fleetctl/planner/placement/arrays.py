"""Types of NumPy arrays in placement: amounts and numbers are integers, only the values of a relaxation are not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
