"""Makes models/ and validation/ anew: `python train.py` (under ten minutes on one core)."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import measure
import net
from canvas import SIDE, draw_canvases, split_digits
from export import CROP, MARGIN, export_find, export_read
from net import Conv, Dense, Pool, Unfold

SEED = 2024
HERE = Path(__file__).parent
CELLS = SIDE // 2  # the heat map has one cell per 2x2 pixels
TRAIN_CANVASES, TUNE_CANVASES, VALIDATION_CANVASES = 8000, 300, 400
FIND_BATCH, READ_BATCH = 16, 64


@dataclass(frozen=True)
class Variant:
    """A net, how many training steps it gets, and its learning rate."""

    layers: tuple
    steps: int
    rate: float


FINDS = {
    "find-s": Variant((Conv(5, 24, 2), Conv(3, 40), Conv(1, 1)), 800, 3e-3),
    "find-m": Variant(
        (Conv(5, 24, 2), Conv(3, 40), Conv(3, 40), Conv(3, 40), Conv(1, 1)),
        700,
        2e-3,
    ),
    "find-l": Variant(
        (
            *(Conv(5, 32, 2), Conv(3, 64), Conv(3, 64), Conv(3, 64), Conv(3, 64)),
            *(Conv(3, 96, 2), Conv(3, 96), Conv(3, 96), Conv(1, 4), Unfold(2)),
        ),
        600,
        1e-3,
    ),
}
READS = {
    "read-s": Variant((Conv(5, 6, 2), Dense(24), Dense(10)), 2000, 2e-3),
    "read-m": Variant(
        (Conv(3, 16), Conv(3, 32), Pool(), Conv(3, 48), Pool(), Dense(10)), 1500, 2e-3
    ),
    "read-l": Variant(
        (
            Conv(3, 32),
            Conv(3, 64),
            Conv(3, 64),
            Pool(),
            Conv(3, 96),
            Conv(3, 96),
            Pool(),
            Dense(10),
        ),
        1300,
        1e-3,
    ),
}


def centre_cell(digit):
    """Returns the (row, column) of the heat-map cell whose middle is nearest to the digit's."""
    return int((digit.y + 0.5) // 2), int((digit.x + 0.5) // 2)


def heat_target(digits):
    """Returns the heat map to learn: one where a digit's centre is, falling off around it."""
    rows, cols = np.mgrid[0:CELLS, 0:CELLS]
    heat = np.zeros((CELLS, CELLS), np.float32)
    for row, col in map(centre_cell, digits):
        np.maximum(heat, np.exp(-((rows - row) ** 2 + (cols - col) ** 2) / 2), out=heat)
    return heat


def heat_loss(logits, heat):
    """Focal loss: centres count as positives, their surroundings as lighter negatives."""
    chance = jax.nn.sigmoid(logits)
    centre = heat == 1
    positive = -((1 - chance) ** 2) * jax.nn.log_sigmoid(logits)
    negative = -((1 - heat) ** 4) * chance**2 * jax.nn.log_sigmoid(-logits)
    return jnp.where(centre, positive, negative).sum() / jnp.maximum(1, centre.sum())


def label_loss(logits, values):
    """Cross-entropy."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), values[:, None], axis=1).mean()


def find_batches(images, digits, rng):
    """Yields shuffled (canvases, heat maps) without end."""
    while True:
        order = rng.permutation(len(images))
        for first in range(0, len(order) - FIND_BATCH + 1, FIND_BATCH):
            part = order[first : first + FIND_BATCH]
            yield images[part], np.stack([heat_target(digits[i]) for i in part])


def read_batches(images, digits, rng):
    """Yields shuffled (crops, values) without end, cropped up to a cell beside the centre."""
    padded = np.pad(images, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)), mode="edge")
    every = [(i, *centre_cell(d), d.value) for i, found in enumerate(digits) for d in found]
    while True:
        order = rng.permutation(len(every))
        for first in range(0, len(order) - READ_BATCH + 1, READ_BATCH):
            crops, values = [], []
            for k in order[first : first + READ_BATCH]:
                canvas, row, col, value = every[k]
                shift = rng.choice([-1, 0, 0, 1], 2)
                top, left = 2 * (np.array([row, col]) + shift) + MARGIN - CROP // 2 + 1
                crops.append(padded[canvas, top : top + CROP, left : left + CROP])
                values.append(value)
            yield np.stack(crops), np.array(values)


def as_labels(digits):
    """Returns digits as the lists that labels.json holds, one for each canvas."""
    return [
        [{"value": d.value, "at": [round(d.x, 2), round(d.y, 2)]} for d in found]
        for found in digits
    ]


def export_tuned(path, name, layers, params, images, labels):
    """Writes a find model with the threshold that gives the best F1 on the canvases given."""
    best = (-1.0, 0.0)
    for threshold in np.arange(-2.0, 1.01, 0.5):
        export_find(path, name, layers, params, threshold)
        recall, precision = measure.score_find(measure.open_model(path), images, labels)
        f1 = 2 * recall * precision / max(recall + precision, 1e-9)
        best = max(best, (f1, float(threshold)))
    export_find(path, name, layers, params, best[1])
    print(f"{name}: threshold {best[1]}, F1 {best[0]:.3f} on the tuning canvases")


def main():
    """Draws the canvases, trains the six nets and writes all files."""
    training, held_out = split_digits(SEED)
    images, digits = draw_canvases(TRAIN_CANVASES, *training, SEED + 1)
    tune_images, tune_digits = draw_canvases(TUNE_CANVASES, *training, SEED + 2)
    check_images, check_digits = draw_canvases(VALIDATION_CANVASES, *held_out, SEED + 3)

    (HERE / "models").mkdir(exist_ok=True)
    (HERE / "validation").mkdir(exist_ok=True)
    np.save(HERE / "validation/image.npy", check_images)
    lines = ",\n".join(json.dumps(found) for found in as_labels(check_digits))
    (HERE / "validation/labels.json").write_text(f"[\n{lines}\n]\n")

    for name, variant in FINDS.items():
        start, rng = time.time(), np.random.default_rng(SEED)
        params = net.init(variant.layers, SIDE, rng, last_bias=-3.0)
        batches = find_batches(images, digits, rng)
        params = net.train(variant.layers, params, heat_loss, batches, variant.steps, variant.rate)
        print(f"{name}: trained in {time.time() - start:.0f} s")
        path = HERE / f"models/{name}.onnx"
        export_tuned(path, name, variant.layers, params, tune_images, as_labels(tune_digits))

    for name, variant in READS.items():
        start, rng = time.time(), np.random.default_rng(SEED)
        params = net.init(variant.layers, CROP, rng)
        batches = read_batches(images, digits, rng)
        params = net.train(variant.layers, params, label_loss, batches, variant.steps, variant.rate)
        print(f"{name}: trained in {time.time() - start:.0f} s")
        export_read(HERE / f"models/{name}.onnx", name, variant.layers, params)


if __name__ == "__main__":
    main()
