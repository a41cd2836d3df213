"""Asks the pipeline `files` for the type of each file: PORT FILE.."""

import sys
import time

import numpy as np
import tritonclient.http as triton
from ends import ends

port, *files = sys.argv[1:]
client = triton.InferenceServerClient(f"localhost:{port}")
for _ in range(600):
    if client.is_model_ready("files"):
        break
    time.sleep(0.1)
rows = np.stack([ends(file) for file in files])
question = triton.InferInput("bytes", rows.shape, "INT32")
question.set_data_from_numpy(rows)
answer = client.infer("files", [question])
for file, kind in zip(files, answer.as_numpy("type")):
    print(f"{file}: {kind.decode()}")
