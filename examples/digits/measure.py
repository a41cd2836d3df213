"""Measures all find x read combinations on the validation set: `python measure.py`."""

import json
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).parent
WITHIN = 4.0  # pixels between a label and an answer that matches it
FINDS = ["find-s", "find-m", "find-l"]
READS = ["read-s", "read-m", "read-l"]


def open_model(path):
    """Opens an ONNX model on one CPU thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_find(session, images):
    """Returns (crops, centers, parent) of a batch of canvases."""
    return session.run(["crops", "centers", "parent"], {"image": images})


def run_read(session, crops, centers):
    """Returns (label, position) of a batch of crops."""
    return session.run(["label", "position"], {"image": crops, "center": centers})


def count_matches(labels, positions, values=None):
    """Pairs labels with answer rows, nearest pairs first and each row once; returns how many.

    Without `values` the place alone decides; with them the values must be equal too.
    """
    pairs = []
    for i, label in enumerate(labels):
        for j, position in enumerate(positions):
            distance = float(np.hypot(*(position - label["at"])))
            if distance <= WITHIN and (values is None or values[j] == label["value"]):
                pairs.append((distance, i, j))
    used_labels, used_rows = set(), set()
    for _, i, j in sorted(pairs):
        if i not in used_labels and j not in used_rows:
            used_labels.add(i)
            used_rows.add(j)
    return len(used_labels)


def score_find(session, images, labels, batch=8):
    """Returns (recall, precision) of the places found."""
    matched = found = 0
    for first in range(0, len(images), batch):
        _, centers, parent = run_find(session, images[first : first + batch])
        found += len(parent)
        for k, truth in enumerate(labels[first : first + batch]):
            matched += count_matches(truth, centers[parent == k])
    return matched / sum(map(len, labels)), matched / max(found, 1)


def score_both(find, read, images, labels, batch=8):
    """Returns (end-to-end accuracy, mean fan-out)."""
    matched = found = 0
    for first in range(0, len(images), batch):
        crops, centers, parent = run_find(find, images[first : first + batch])
        values, positions = run_read(read, crops, centers)
        found += len(parent)
        for k, truth in enumerate(labels[first : first + batch]):
            mine = parent == k
            matched += count_matches(truth, positions[mine], values[mine])
    return matched / sum(map(len, labels)), found / len(images)


def time_both(find, read, images, batch):
    """Returns the mean milliseconds a canvas takes through find and then read."""
    spent = 0.0
    for first in range(-batch, len(images), batch):  # the first round warms up
        part = images[max(first, 0) :][:batch]
        start = time.perf_counter()
        crops, centers, _ = run_find(find, part)
        run_read(read, crops, centers)
        spent += time.perf_counter() - start if first >= 0 else 0.0
    return 1000 * spent / len(images)


def time_call(rows, call, *arguments):
    """Returns the median milliseconds per row of a call that handles `rows` rows."""
    call(*arguments)
    times = []
    for _ in range(40):
        start = time.perf_counter()
        call(*arguments)
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times)) / rows


def table_row(*cells):
    """Returns a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def main():
    """Prints the tables that README.md shows."""
    images = np.load(HERE / "validation/image.npy")
    labels = json.loads((HERE / "validation/labels.json").read_text())
    models = {name: open_model(HERE / f"models/{name}.onnx") for name in FINDS + READS}
    batches = [1, 8, 32]

    print(table_row("variant", "recall", "precision", *[f"ms/row, batch {n}" for n in batches]))
    print(table_row(*["---"] * 6))
    for name in FINDS:
        model = models[name]
        recall, precision = score_find(model, images, labels)
        costs = [time_call(n, run_find, model, images[:n]) for n in batches]
        print(table_row(name, f"{recall:.3f}", f"{precision:.3f}", *[f"{c:.3f}" for c in costs]))
    crops, centers, _ = run_find(models["find-l"], images[:32])
    for name in READS:
        model = models[name]
        costs = [time_call(n, run_read, model, crops[:n], centers[:n]) for n in batches]
        print(table_row(name, "", "", *[f"{c:.4f}" for c in costs]))

    print()
    costs = [f"ms/query, batch {n}" for n in (1, 8)]
    print(table_row("find", "read", "accuracy", "fan-out", *costs))
    print(table_row(*["---"] * 6))
    for find in FINDS:
        for read in READS:
            pair = models[find], models[read]
            accuracy, fan_out = score_both(*pair, images, labels)
            costs = [f"{time_both(*pair, images, n):.2f}" for n in (1, 8)]
            print(table_row(find, read, f"{accuracy:.3f}", f"{fan_out:.2f}", *costs))


if __name__ == "__main__":
    main()
