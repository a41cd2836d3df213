"""Writes trained nets as ONNX graphs, with everything around the net inside the graph."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from canvas import SIDE
from net import Conv, Dense, Pool, Unfold

OPSET, IR_VERSION = 17, 8
CROP = 16
MARGIN = 8  # pixels added around the canvas, so that crops at the border stay inside


class Graph:
    """Collects nodes and constants."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def const(self, value):
        """Adds a constant and returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind, *inputs, out=None, **attributes):
        """Adds a node with one output and returns that output's name."""
        out = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def save(self, path, name, inputs, outputs):
        """Checks the graph and writes it; inputs and outputs are (name, type, shape) triples."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(*value) for value in outputs],
            self.constants,
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def add_net(graph, layers, params, image, side):
    """Adds the net on a uint8 image tensor [n,side,side]; returns its output's name."""
    x = graph.op("Cast", image, to=TensorProto.FLOAT)
    x = graph.op("Mul", x, graph.const(np.float32(1 / 255)))
    x = graph.op("Unsqueeze", x, graph.const(np.array([1])))
    params, channels = list(params), 1
    for layer in layers:
        if isinstance(layer, Pool):
            x, side = graph.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), side // 2
            continue
        if isinstance(layer, Unfold):
            x = graph.op("DepthToSpace", x, blocksize=layer.block)
            continue
        weight, bias = params.pop(0)
        if isinstance(layer, Conv):
            x = graph.op(
                "Conv",
                x,
                graph.const(np.ascontiguousarray(weight.transpose(3, 2, 0, 1))),
                graph.const(bias),
                kernel_shape=[layer.size] * 2,
                pads=[layer.size // 2] * 4,
                strides=[layer.stride] * 2,
            )
            side, channels = side // layer.stride, layer.channels
        elif isinstance(layer, Dense):
            # The net was trained with channels last; ONNX flattens with channels first.
            weight = weight.reshape(side, side, channels, -1).transpose(2, 0, 1, 3)
            weight = np.ascontiguousarray(weight.reshape(-1, layer.units))
            x = graph.op("Gemm", graph.op("Flatten", x), graph.const(weight), graph.const(bias))
            side, channels = 1, layer.units
        if params:
            x = graph.op("Relu", x)
    return x


def export_find(path, name, layers, params, threshold):
    """Writes a `find` variant: heat map, its peaks above `threshold`, and a crop around each."""
    graph = Graph()
    heat = add_net(graph, layers, params, "image", SIDE)  # [batch,1,32,32]
    highest = graph.op("MaxPool", heat, kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])
    is_peak = graph.op("Equal", heat, highest)
    is_hot = graph.op("Greater", heat, graph.const(np.float32(threshold)))
    where = graph.op("NonZero", graph.op("And", is_peak, is_hot))  # [4,rows], batch-major

    graph.op("Gather", where, graph.const(np.int64(0)), axis=0, out="parent")
    cell_xy = graph.op("Gather", where, graph.const(np.array([3, 2])), axis=0)
    cell_xy = graph.op("Transpose", cell_xy, perm=[1, 0])  # [rows,2]
    corner = graph.op("Mul", cell_xy, graph.const(np.int64(2)))  # each cell is 2x2 pixels
    middle = graph.op("Cast", corner, to=TensorProto.FLOAT)
    graph.op("Add", middle, graph.const(np.float32(0.5)), out="centers")

    # A crop's pixels as indices into the batch of padded canvases, laid out flat.
    padded = graph.op("Pad", "image", graph.const(np.array([0, MARGIN, MARGIN] * 2)), mode="edge")
    flat = graph.op("Reshape", padded, graph.const(np.array([-1])))
    width = SIDE + 2 * MARGIN
    first = MARGIN - CROP // 2 + 1
    window = first + np.arange(CROP)
    window = np.add.outer(window * width, window)  # [16,16]
    strides = graph.const(np.array([[1], [width]]))
    start = graph.op("MatMul", corner, strides)  # [rows,1]
    canvas = graph.op("Unsqueeze", "parent", graph.const(np.array([1])))
    start = graph.op("Add", start, graph.op("Mul", canvas, graph.const(np.int64(width * width))))
    start = graph.op("Unsqueeze", start, graph.const(np.array([2])))
    graph.op("Gather", flat, graph.op("Add", start, graph.const(window)), axis=0, out="crops")

    graph.save(
        path,
        name,
        [("image", TensorProto.UINT8, ["batch", SIDE, SIDE])],
        [
            ("crops", TensorProto.UINT8, ["rows", CROP, CROP]),
            ("centers", TensorProto.FLOAT, ["rows", 2]),
            ("parent", TensorProto.INT64, ["rows"]),
        ],
    )


def export_read(path, name, layers, params):
    """Writes a `read` variant: the label of each crop, with the crop's place passed through."""
    graph = Graph()
    scores = add_net(graph, layers, params, "image", CROP)
    graph.op("ArgMax", scores, axis=1, keepdims=0, out="label")
    graph.op("Identity", "center", out="position")
    graph.save(
        path,
        name,
        [
            ("image", TensorProto.UINT8, ["rows", CROP, CROP]),
            ("center", TensorProto.FLOAT, ["rows", 2]),
        ],
        [("label", TensorProto.INT64, ["rows"]), ("position", TensorProto.FLOAT, ["rows", 2])],
    )
