"""What the model of Magika reads of a file. As a program: writes labelled examples, from FILE=TYPE arguments."""

import json
import sys
from pathlib import Path

import numpy as np

PADDING = 256


def ends(path):
    """The first and the last 1,024 bytes, without white space at the ends of the file."""
    content = Path(path).read_bytes()
    first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    row = np.full(2048, PADDING, "i4")
    row[: len(first)] = list(first)
    row[2048 - len(last) :] = list(last)
    return row


if __name__ == "__main__":
    labelled = [argument.rsplit("=", 1) for argument in sys.argv[1:]]
    folder = Path(__file__).parent / "validation"
    np.save(folder / "bytes.npy", np.stack([ends(path) for path, _ in labelled]))
    labels = [json.dumps([{"value": kind}]) for _, kind in labelled]
    (folder / "labels.json").write_text("[\n  " + ",\n  ".join(labels) + "\n]\n")
