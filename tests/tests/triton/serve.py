"""Serves a function of numpy by pytriton until it is killed: `serve.py HTTP_PORT GRPC_PORT METRICS_PORT`."""

import sys

import numpy
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def double(x: numpy.ndarray) -> dict[str, numpy.ndarray]:
    return {"y": 2 * x}


http, grpc, metrics = (int(word) for word in sys.argv[1:])
tensor = {"dtype": numpy.float32, "shape": (4,)}
config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics)
with Triton(config=config) as triton:
    triton.bind(
        model_name="double",
        infer_func=double,
        inputs=[Tensor(name="x", **tensor)],
        outputs=[Tensor(name="y", **tensor)],
        config=ModelConfig(max_batch_size=4),
    )
    triton.serve()
