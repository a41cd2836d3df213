"""Writes an ONNX file in another precision: MODEL PRECISION FILE. Inputs and outputs keep their types."""

import logging
import os
import sys
import tempfile

try:
    import onnx
    from onnxruntime.quantization import QuantType, quant_pre_process, quantize_dynamic
    from onnxruntime.quantization.onnx_model import ONNXModel
    from onnxruntime.transformers.float16 import convert_float_to_float16
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)

# Their notes about single tensors do not say that anything went wrong.
logging.disable(logging.WARNING)


def write_fp16(path, out):
    model = ONNXModel(convert_float_to_float16(onnx.load(path), keep_io_types=True))
    # The converter appends its casts, and the nodes of a graph are in the order in which they run.
    model.topological_sort()
    onnx.save(model.model, out)


def write_int8(path, out):
    with tempfile.TemporaryDirectory() as folder:
        # Weights become initialisers: only those are quantised.
        ready = os.path.join(folder, "ready.onnx")
        quant_pre_process(path, ready, skip_symbolic_shape=True)
        model = onnx.load(ready)
    # On processors, convolutions are fast with unsigned weights only.
    has_convolution = any(node.op_type == "Conv" for node in model.graph.node)
    quantize_dynamic(model, out, weight_type=QuantType.QUInt8 if has_convolution else QuantType.QInt8)
    made = {node.op_type for node in onnx.load(out).graph.node}
    if not made & {"DynamicQuantizeLinear", "DequantizeLinear"}:
        raise ValueError("it multiplies by no constant weights, so int8 would change nothing")


_, path, precision, out = sys.argv
{"fp16": write_fp16, "int8": write_int8}[precision](path, out)
