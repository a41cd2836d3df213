"""Draws signs with texts, with the font that Pillow brings. As a program: writes the labelled examples."""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIZE = (256, 128)


def sign(*texts):
    """A picture with a text on each line."""
    picture = Image.new("RGB", SIZE, (240, 240, 230))
    draw = ImageDraw.Draw(picture)
    for line, text in enumerate(texts):
        draw.text((16, 16 + 56 * line), text, (20, 30, 60), ImageFont.load_default(28))
    return picture


if __name__ == "__main__":
    signs = [("Platform", "Museum"), ("Exit",), ("Tickets", "Harbour"), ("Mind the gap",)]
    folder = Path(__file__).parent / "validation"
    np.save(folder / "photos.npy", np.stack([np.asarray(sign(*texts)) for texts in signs]))
    labels = [json.dumps([{"value": text} for text in texts]) for texts in signs]
    (folder / "labels.json").write_text("[\n  " + ",\n  ".join(labels) + "\n]\n")
    sign("Apportion", "Elevator").save(folder.parent / "sign.png")
