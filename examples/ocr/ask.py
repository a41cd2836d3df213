"""Asks the pipeline `texts` what is written on a picture: PORT FILE"""

import sys
import time

import numpy as np
import tritonclient.http as triton
from PIL import Image

port, file = sys.argv[1:]
client = triton.InferenceServerClient(f"localhost:{port}", network_timeout=60)
for _ in range(600):
    if client.is_model_ready("texts"):
        break
    time.sleep(0.1)
photo = np.asarray(Image.open(file).convert("RGB"))[None]
question = triton.InferInput("photo", photo.shape, "UINT8")
question.set_data_from_numpy(photo)
answer = client.infer("texts", [question])
for text in answer.as_numpy("text"):
    print(text.decode())
