"""Two variants of one task for Triton's Python backend: each gives a mark to every row of 64 numbers.

A replica holds its device for the time that its model would take on a GPU: the product is computed, and the rest of the time
is waited.
"""

import time

import numpy
import triton_python_backend_utils as triton

# Milliseconds of a batch, and of each of its rows. The numbers are invented.
TIMES_MS = {"small": (12.0, 4.0), "large": (30.0, 10.0)}


class TritonPythonModel:
    def initialize(self, args: dict) -> None:
        self.batch_ms, self.row_ms = TIMES_MS[args["model_name"]]
        self.weights = numpy.random.default_rng(1).standard_normal((64, 1)).astype(numpy.float32)

    def execute(self, requests: list) -> list:
        begun = time.monotonic()
        parts = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        marks = numpy.concatenate(parts) @ self.weights
        left_s = (self.batch_ms + self.row_ms * len(marks)) / 1e3 - (time.monotonic() - begun)
        time.sleep(max(0.0, left_s))
        ends = numpy.cumsum([len(part) for part in parts])[:-1]
        return [triton.InferenceResponse([triton.Tensor("mark", part)]) for part in numpy.split(marks, ends)]
