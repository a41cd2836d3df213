"""Runs a user's own stage for an agent: `python3 -I -c RUNNER INPUTS OUTPUTS STAGE BYTES_MAX`.

Tensors lie in the two shared files. Control messages are lines of JSON: batches on standard input, answers on what was
standard output. What the stage prints goes to standard error.
"""

import ctypes
import json
import mmap
import os
import sys
import traceback
import types

ALIGNMENT = 64
ERROR_CHARACTERS_MAX = 4000
NAMES = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}


class Refused(Exception):
    """What the stage made, or says that it makes, cannot be taken."""


def die_with_parent():
    """Asks Linux to end this process when the thread that started it ends."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(1, 9)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent:
        os._exit(0)


class Shared:
    """A file in memory that grows."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR)
        self.map, self.size = None, 0

    def view(self, needed):
        """The file's bytes, at least `needed` of them."""
        size = os.fstat(self.file).st_size
        if size < needed:
            os.ftruncate(self.file, needed)
            size = needed
        if size != self.size:
            # Arrays may still refer to the map before: it goes when they do.
            self.map, self.size = mmap.mmap(self.file, size), size
        return self.map


def texts_of(data):
    """The elements of BYTES: each a length of four bytes, and its bytes."""
    elements, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        elements.append(bytes(data[at + 4 : at + 4 + length]))
        at += 4 + length
    return elements


def bytes_of(element):
    """A text or bytes as an element of BYTES."""
    data = element.encode() if isinstance(element, str) else bytes(element)
    return len(data).to_bytes(4, "little") + data


def read_inputs(np, shared, heads):
    """The batch's tensors. Arrays of numbers are views of the shared file; they cannot be written to."""
    whole = shared.view(max((head["offset"] + head["bytes"] for head in heads), default=0) or 1)
    inputs = {}
    for head in heads:
        start, size, shape = head["offset"], head["bytes"], head["shape"]
        if head["datatype"] == "BYTES":
            array = np.empty(shape, dtype=object)
            array.flat = texts_of(memoryview(whole)[start : start + size])
        else:
            dtype = np.dtype(NAMES[head["datatype"]])
            array = np.empty(shape, dtype)
            if size:
                array = np.frombuffer(whole, dtype, size // dtype.itemsize, start).reshape(shape)
            array.flags.writeable = False
        inputs[head["name"]] = array
    return inputs


def encoded(np, name, value, datatype):
    """An output's shape, and its bytes or a contiguous array."""
    if datatype == "BYTES":
        array = np.asarray(value, dtype=object)
        return array.shape, b"".join(bytes_of(element) for element in array.flat)
    array = np.asarray(value)
    expected = np.dtype(NAMES[datatype])
    if array.dtype != expected:
        raise Refused(f"output {name} is {array.dtype}: expected {expected}, as OUTPUTS says ({datatype})")
    return array.shape, np.ascontiguousarray(array)


def write_outputs(np, shared, made, declared, bytes_max):
    """Puts the outputs into the shared file; what the agent must know of them."""
    if not isinstance(made, dict):
        raise Refused(f"run returned {type(made).__name__}: expected a dict of arrays by name")
    parts, end = [], 0
    for name, datatype in declared.items():
        if name not in made:
            raise Refused(f"run returned no {name}: expected {', '.join(declared)}")
        shape, data = encoded(np, name, made[name], datatype)
        size = len(data) if isinstance(data, bytes) else data.nbytes
        parts.append(({"name": name, "datatype": datatype, "shape": shape, "offset": end, "bytes": size}, data))
        end = -(-(end + size) // ALIGNMENT) * ALIGNMENT
    if end > bytes_max:
        raise Refused(f"the outputs have {end} bytes: expected at most {bytes_max}")
    whole = shared.view(end or 1)
    for head, data in parts:
        start, size = head["offset"], head["bytes"]
        if isinstance(data, bytes):
            whole[start : start + size] = data
        elif size:
            np.frombuffer(whole, data.dtype, data.size, start)[:] = data.reshape(-1)
    return [head for head, _ in parts]


def specs(stage, name):
    """The tensors that the stage declares."""
    declared = getattr(stage, name, None)
    if not isinstance(declared, dict) or not declared:
        form = "{'x': ('FP32', [-1, 2])}"
        raise Refused(f"it has no {name}: expected a dict of names with datatype and shape, for example {form}")
    listed = []
    for tensor, (datatype, shape) in declared.items():
        if datatype != "BYTES" and datatype not in NAMES:
            raise Refused(f"{name}: {tensor} is {datatype}: expected BYTES or one of {', '.join(NAMES)}")
        listed.append({"name": tensor, "datatype": datatype, "shape": [int(size) for size in shape]})
    return listed


def load(path):
    """The stage's module."""
    stage = types.ModuleType("stage")
    stage.__file__ = path
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), stage.__dict__)
    if not callable(getattr(stage, "run", None)):
        raise Refused("it has no function run: expected run(inputs), which returns a dict of arrays by name")
    return stage


def main():
    die_with_parent()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def answer(message):
        answers.write(json.dumps(message).encode() + b"\n")

    def fault(error):
        text = str(error) if isinstance(error, Refused) else traceback.format_exc()
        return {"error": text[-ERROR_CHARACTERS_MAX:]}

    inputs_path, outputs_path, path, bytes_max = sys.argv[1:]
    try:
        import numpy as np

        inputs, outputs = Shared(inputs_path), Shared(outputs_path)
        stage = load(path)
        takes, makes = specs(stage, "INPUTS"), specs(stage, "OUTPUTS")
    except Exception as error:
        answer(fault(error))
        return
    declared = {spec["name"]: spec["datatype"] for spec in makes}
    answer({"inputs": takes, "outputs": makes})
    for line in sys.stdin.buffer:
        batch = json.loads(line)
        try:
            made = stage.run(read_inputs(np, inputs, batch["tensors"]))
            tensors = write_outputs(np, outputs, made, declared, int(bytes_max))
            answer({"batch": batch["batch"], "tensors": tensors})
        except Exception as error:
            answer({"batch": batch["batch"], **fault(error)})


main()
