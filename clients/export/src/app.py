"""Runs the variants of a plan in Ray Serve: each batches its queries as the plan says.

The configuration gives `build` the variants. Needed: ray[serve], numpy, and onnxruntime or onnxruntime-gpu.
"""

import random
from typing import Any

import numpy
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse


@serve.deployment
class Variant:
    """One variant. Queries with equal shapes are one batch, and each query is one row."""

    def __init__(self, variant: dict[str, Any]):
        import onnxruntime

        providers = ["CUDAExecutionProvider"] if variant["gpu"] else ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(variant["model"], providers=providers)
        self.types = {i.name: NUMPY_TYPES.get(i.type, "float32") for i in self.session.get_inputs()}
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.run_batch.set_max_batch_size(variant["batch"])
        self.run_batch.set_batch_wait_timeout_s(variant["wait_s"])

    @serve.batch
    async def run_batch(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_shape: dict[tuple, list[int]] = {}
        rows = [{n: numpy.asarray(row[n], dtype=t) for n, t in self.types.items()} for row in rows]
        for at, row in enumerate(rows):
            by_shape.setdefault(tuple(row[n].shape for n in self.types), []).append(at)
        answers: list[dict[str, Any]] = [{} for _ in rows]
        for members in by_shape.values():
            inputs = {n: numpy.stack([rows[at][n] for at in members]) for n in self.types}
            for name, values in zip(self.outputs, self.session.run(self.outputs, inputs)):
                for at, value in zip(members, values):
                    answers[at][name] = value.tolist()
        return answers

    async def infer(self, row: dict[str, Any]) -> dict[str, Any]:
        return await self.run_batch(row)


NUMPY_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int16)": "int16",
    "tensor(int8)": "int8",
    "tensor(uint64)": "uint64",
    "tensor(uint32)": "uint32",
    "tensor(uint16)": "uint16",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
    "tensor(string)": "object",
}


@serve.deployment(name="tasks")
class Tasks:
    """Answers `POST /TASK`: chooses a variant of the task by the plan's shares of the traffic."""

    def __init__(self, variants: list[dict[str, Any]], *handles: Any):
        self.tasks: dict[str, list[tuple[float, Any]]] = {}
        for variant, handle in zip(variants, handles):
            self.tasks.setdefault(variant["task"], []).append((variant["weight"], handle))

    async def __call__(self, request: Request) -> Any:
        task = request.url.path.rstrip("/").rsplit("/", 1)[-1]
        if task not in self.tasks:
            return JSONResponse({"error": f"no task {task!r}; there are {sorted(self.tasks)}"}, status_code=404)
        weights, handles = zip(*self.tasks[task])
        handle = random.choices(handles, weights)[0]
        return {"outputs": await handle.infer.remote((await request.json())["inputs"])}


def build(args: dict[str, Any]) -> Any:
    variants = args["variants"]
    handles = [Variant.options(name=variant["name"]).bind(variant) for variant in variants]
    return Tasks.bind(variants, *handles)
