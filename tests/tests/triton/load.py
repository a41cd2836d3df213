"""Plays arrivals on Triton's port for gRPC, one row for each: `load.py ADDRESS ARRIVALS.csv MODEL=SHARE ...`.

Prints for each arrival the time in milliseconds from the moment when it was due to its answer, or `failed: REASON`.
"""

import csv
import random
import sys
import threading
import time

import numpy
import tritonclient.grpc as triton

# A client waits no longer than this for its answer.
ANSWER_S_MAX = 60.0

address, file = sys.argv[1], sys.argv[2]
shares = {model: float(share) for model, share in (word.split("=") for word in sys.argv[3:])}
with open(file) as lines:
    due_s = [float(row["arrival_ms"]) / 1e3 for row in csv.DictReader(lines)]
models = random.Random(1).choices(list(shares), list(shares.values()), k=len(due_s))

client = triton.InferenceServerClient(address)
row = triton.InferInput("x", [1, 64], "FP32")
row.set_data_from_numpy(numpy.ones((1, 64), numpy.float32))
for model in shares:
    client.infer(model, [row])

answers = ["failed: no answer"] * len(due_s)
answered = threading.Semaphore(0)


def taker(number: int, due: float):
    def take(result, error) -> None:
        answers[number] = f"failed: {error}" if error else f"{(time.monotonic() - due) * 1e3:.3f}"
        answered.release()

    return take


start = time.monotonic() + 0.5
for number, (at_s, model) in enumerate(zip(due_s, models)):
    time.sleep(max(0.0, start + at_s - time.monotonic()))
    client.async_infer(model, [row], callback=taker(number, start + at_s))
for _ in due_s:
    answered.acquire(timeout=ANSWER_S_MAX)
print("\n".join(answers))
