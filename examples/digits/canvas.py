"""Draws the canvases: handwritten digits on a noisy 64x64 background."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits

SIDE = 64
PATCH = 26  # holds an 18-pixel digit at any rotation
HELD_OUT = 500
COUNT_ODDS = [0.08, 0.12, 0.20, 0.22, 0.18, 0.12, 0.08]  # of 0, 1, .. 6 digits; mean 2.98


@dataclass
class Digit:
    """One digit that was drawn: its value and its centre in canvas pixels."""

    value: int
    x: float
    y: float


def split_digits(seed):
    """Returns (training, held-out) parts of the data set, each (glyphs [n,8,8] in 0..1, values)."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    glyphs, values = data.images[order] / 16.0, data.target[order]
    held, train = slice(0, HELD_OUT), slice(HELD_OUT, None)
    return (glyphs[train], values[train]), (glyphs[held], values[held])


def draw_glyph(ink, glyph, x, y, size, angle, contrast):
    """Adds one glyph, scaled to `size` pixels and rotated, to the ink layer around (x, y)."""
    top, left = int(y) - PATCH // 2, int(x) - PATCH // 2
    scale = 8.0 / size
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    matrix = np.array([[cos, -sin], [sin, cos]])
    offset = np.array([3.5, 3.5]) - matrix @ np.array([y - top, x - left])
    patch = contrast * affine_transform(glyph, matrix, offset, (PATCH, PATCH), order=1)
    rows = slice(max(top, 0), min(top + PATCH, SIDE))
    cols = slice(max(left, 0), min(left + PATCH, SIDE))
    inside = patch[rows.start - top : rows.stop - top, cols.start - left : cols.stop - left]
    ink[rows, cols] = np.maximum(ink[rows, cols], inside)


def draw_stroke(ink, rng, segments, longest, turn):
    """Adds clutter: a line of `segments` pieces, turning up to `turn` radians between them."""
    grid_y, grid_x = np.mgrid[0:SIDE, 0:SIDE]
    width, contrast = rng.uniform(1.0, 2.4), rng.uniform(0.3, 0.8)
    x, y = rng.uniform(0, SIDE, 2)
    heading = rng.uniform(0, 2 * np.pi)
    for _ in range(segments):
        length = rng.uniform(4, longest)
        dx, dy = length * np.cos(heading), length * np.sin(heading)
        along = np.clip(((grid_x - x) * dx + (grid_y - y) * dy) / length**2, 0, 1)
        distance = np.hypot(grid_x - x - along * dx, grid_y - y - along * dy)
        np.maximum(ink, contrast * np.clip((width / 2 + 1 - distance) / 1.5, 0, 1), out=ink)
        x, y, heading = x + dx, y + dy, heading + rng.uniform(-turn, turn)


def draw_canvas(glyphs, values, rng):
    """Returns one canvas (uint8 [64,64]) and the digits that are on it."""
    ink = np.zeros((SIDE, SIDE))
    for _ in range(rng.integers(0, 3)):
        draw_stroke(ink, rng, segments=rng.integers(1, 4), longest=10, turn=1.2)
    for _ in range(rng.integers(0, 3)):  # scribbles about as large and as crooked as digits
        draw_stroke(ink, rng, segments=rng.integers(3, 6), longest=8, turn=2.2)
    digits, sizes = [], []
    for _ in range(rng.choice(len(COUNT_ODDS), p=COUNT_ODDS)):
        for _ in range(40):  # tries to find a free place
            size = rng.uniform(12, 18)
            x, y = rng.uniform(8, SIDE - 9, 2)
            gaps = [np.hypot(d.x - x, d.y - y) / (s + size) for d, s in zip(digits, sizes)]
            if min(gaps, default=1.0) > 0.48:
                which = rng.integers(len(values))
                angle, contrast = rng.uniform(-0.25, 0.25), rng.uniform(0.3, 0.8)
                draw_glyph(ink, glyphs[which], x, y, size, angle, contrast)
                digits.append(Digit(int(values[which]), x, y))
                sizes.append(size)
                break
    slope = rng.uniform(-0.15, 0.15, 2)
    ramp = np.add.outer(
        np.linspace(-slope[0], slope[0], SIDE), np.linspace(-slope[1], slope[1], SIDE)
    )
    noise = rng.normal(0, rng.uniform(0.03, 0.10), (SIDE, SIDE))
    canvas = rng.uniform(0.1, 0.3) + ramp + ink + noise
    return np.round(255 * np.clip(canvas, 0, 1)).astype(np.uint8), digits


def draw_canvases(count, glyphs, values, seed):
    """Returns `count` canvases (uint8 [count,64,64]) and, per canvas, its digits."""
    rng = np.random.default_rng(seed)
    drawn = [draw_canvas(glyphs, values, rng) for _ in range(count)]
    return np.stack([canvas for canvas, _ in drawn]), [digits for _, digits in drawn]
