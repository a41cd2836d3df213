"""Finds the lines of text in the map of a detector, as rectangles on the photo."""

import numpy as np

SIDE = 640  # of the map
TEXT = 0.3  # scores above it are text
GAP = 24  # columns without text that part two lines
GROW = 0.7  # the detector marks the core of a line; the box is larger by this part of its height

INPUTS = {"map": ("FP32", [-1, 1, SIDE, SIDE]), "photo": ("UINT8", [-1, -1, -1, 3])}
OUTPUTS = {"boxes": ("FP32", [-1, 4]), "parent": ("INT64", [-1])}


def spans(marked, gap):
    """First and last place of each run of marks; runs that are at most `gap` apart are one."""
    at = np.flatnonzero(marked)
    cuts = np.flatnonzero(np.diff(at) > gap + 1)
    return zip(at[np.r_[0, cuts + 1]], at[np.r_[cuts, len(at) - 1]] + 1) if len(at) else []


def lines(text):
    """Rectangles of text: rows of the picture first, then columns of each, then rows of those."""
    for top, bottom in spans(text.any(axis=1), 0):
        for left, right in spans(text[top:bottom].any(axis=0), GAP):
            for y0, y1 in spans(text[top:bottom, left:right].any(axis=1), 0):
                yield left, top + y0, right, top + y1


def run(inputs):
    boxes, parent = [], []
    for row, (scores, photo) in enumerate(zip(inputs["map"], inputs["photo"])):
        scale = max(photo.shape[:2]) / SIDE
        for left, top, right, bottom in lines(scores[0] > TEXT):
            more = (bottom - top) * GROW
            if bottom - top > 3 and right - left > 3:
                boxes.append([(left - more) * scale, (top - more) * scale, (right + more) * scale, (bottom + more) * scale])
                parent.append(row)
    return {"boxes": np.array(boxes, "f4").reshape(-1, 4), "parent": np.array(parent, "i8")}
