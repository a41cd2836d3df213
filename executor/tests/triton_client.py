"""The unmodified tritonclient against an agent that serves the pipelines `toy` and `echo` of clients.rs.

Usage: triton_client.py HTTP GRPC. Each case prints its name; the first that fails ends the program.
"""

import asyncio
import queue
import sys
import threading
import time

import ml_dtypes
import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

HTTP, GRPC = sys.argv[1], sys.argv[2]
PATIENCE_S = 60.0

# `toy`: a row (n, v) makes n queries (k, v), and each of those its sum.
ROWS = np.array([[2, 10], [0, 5], [1, 7]], dtype=np.float32)
SUMS, PARENTS = [10.0, 11.0, 7.0], [0, 0, 2]

# `echo`: an input of each datatype that numpy has, of shape [-1, 2].
TYPES = {
    "BOOL": np.array([[True, False], [False, True]]),
    "UINT8": np.array([[0, 255], [1, 2]], dtype=np.uint8),
    "UINT16": np.array([[0, 65535], [1, 2]], dtype=np.uint16),
    "UINT32": np.array([[0, 2**32 - 1], [1, 2]], dtype=np.uint32),
    "UINT64": np.array([[0, 2**64 - 1], [1, 2]], dtype=np.uint64),
    "INT8": np.array([[-128, 127], [1, 2]], dtype=np.int8),
    "INT16": np.array([[-(2**15), 2**15 - 1], [1, 2]], dtype=np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1], [1, 2]], dtype=np.int32),
    "INT64": np.array([[-(2**63), 2**63 - 1], [1, 2]], dtype=np.int64),
    "FP16": np.array([[0.5, -65504], [1, 2]], dtype=np.float16),
    "FP32": np.array([[0.1, -3e38], [1, 2]], dtype=np.float32),
    "FP64": np.array([[0.1, -1e308], [1, 2]], dtype=np.float64),
    "BF16": np.array([[0.5, -2], [1, 3]], dtype=ml_dtypes.bfloat16),
    "BYTES": np.array([["", "zwölf"], ["a b", '"\\\n']], dtype=object),
}
NOT_IN_JSON = ["FP16", "BF16"]


def toy(module, rows=ROWS):
    tensor = module.InferInput("x", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    return [tensor]


def check_toy(result):
    assert result.as_numpy("s").tolist() == SUMS, result.as_numpy("s")
    assert result.as_numpy("parent").tolist() == PARENTS, result.as_numpy("parent")


def texts(array):
    return [t.decode() if isinstance(t, bytes) else t for t in array.reshape(-1)]


def check_echo(name, sent, got):
    assert list(got.shape) == list(sent.shape), f"{name}: {got.shape}"
    if name == "BYTES":
        assert texts(got) == texts(sent), f"{name}: {got}"
    else:
        assert np.array_equal(got.astype(sent.dtype), sent), f"{name}: {got}"


def echo(module, binary):
    inputs, outputs = [], []
    for name, array in TYPES.items():
        raw = binary or name in NOT_IN_JSON
        tensor = module.InferInput(name, list(array.shape), name)
        if module is http:
            tensor.set_data_from_numpy(array, binary_data=raw)
            outputs.append(module.InferRequestedOutput(name, binary_data=raw))
        else:
            tensor.set_data_from_numpy(array)
            outputs.append(module.InferRequestedOutput(name))
        inputs.append(tensor)
    return inputs, outputs


def refused(expected, call):
    try:
        call()
    except InferenceServerException as error:
        assert expected in str(error), f"expected {expected}: {error}"
        return error
    raise AssertionError(f"not refused: expected {expected}")


def both_say_what_is_here(client, as_dict):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("toy")
    metadata = as_dict(client.get_model_metadata("toy"))
    assert metadata["name"] == "toy" and metadata["inputs"][0]["datatype"] == "FP32", metadata
    assert [int(d) for d in metadata["inputs"][0]["shape"]] == [-1, 2], metadata
    server = as_dict(client.get_server_metadata())
    assert server["name"] == "apportion" and "binary_tensor_data" in server["extensions"], server
    config = as_dict(client.get_model_config("toy"))
    config = config.get("config", config)
    assert config["input"][0]["data_type"] == "TYPE_FP32", config
    index = as_dict(client.get_model_repository_index())
    index = index["models"] if isinstance(index, dict) else index
    assert {m["name"]: m["state"] for m in index} == {"echo": "READY", "pick": "READY", "slow": "READY", "toy": "READY"}, index
    client.infer("toy", toy(http if isinstance(client, http.InferenceServerClient) else grpc))
    statistics = as_dict(client.get_inference_statistics("toy"))["model_stats"][0]
    assert int(statistics["inference_count"]) >= 3, statistics
    assert int(statistics["inference_stats"]["success"]["count"]) >= 1, statistics
    assert len(as_dict(client.get_inference_statistics())["model_stats"]) == 4


def http_says_what_is_here():
    with http.InferenceServerClient(HTTP) as client:
        both_say_what_is_here(client, lambda answer: answer)


def grpc_says_what_is_here():
    from google.protobuf import json_format

    with grpc.InferenceServerClient(GRPC) as client:
        to_dict = lambda m: json_format.MessageToDict(m, preserving_proto_field_name=True)
        both_say_what_is_here(client, to_dict)


def http_binary():
    with http.InferenceServerClient(HTTP) as client:
        result = client.infer("toy", toy(http), request_id="seven")
        check_toy(result)
        assert result.get_response()["id"] == "seven"
        assert result.get_response()["parameters"]["outcome"] == "ok"


def http_json():
    with http.InferenceServerClient(HTTP) as client:
        tensor = http.InferInput("x", list(ROWS.shape), "FP32")
        tensor.set_data_from_numpy(ROWS, binary_data=False)
        wanted = [http.InferRequestedOutput(name, binary_data=False) for name in ["parent", "s"]]
        result = client.infer("toy", [tensor], outputs=wanted)
        check_toy(result)
        assert [o["name"] for o in result.get_response()["outputs"]] == ["parent", "s"]


def http_mixed_and_filtered():
    with http.InferenceServerClient(HTTP) as client:
        result = client.infer("toy", toy(http), outputs=[http.InferRequestedOutput("s", binary_data=False)])
        assert result.as_numpy("parent") is None and result.as_numpy("s").tolist() == SUMS


def http_every_datatype():
    with http.InferenceServerClient(HTTP) as client:
        for binary in [True, False]:
            inputs, outputs = echo(http, binary)
            result = client.infer("echo", inputs, outputs=outputs)
            for name, array in TYPES.items():
                check_echo(name, array, result.as_numpy(name))


def grpc_every_datatype():
    with grpc.InferenceServerClient(GRPC) as client:
        inputs, outputs = echo(grpc, True)
        result = client.infer("echo", inputs, outputs=outputs)
        for name, array in TYPES.items():
            check_echo(name, array, result.as_numpy(name))


def http_threads():
    with http.InferenceServerClient(HTTP, concurrency=4) as client:
        for request in [client.async_infer("toy", toy(http)) for _ in range(32)]:
            check_toy(request.get_result(timeout=PATIENCE_S))


def bodies_are_compressed():
    rows = np.tile(ROWS, (400, 1))
    with http.InferenceServerClient(HTTP) as client:
        for way in ["gzip", "deflate"]:
            ways = {"request_compression_algorithm": way, "response_compression_algorithm": way}
            result = client.infer("toy", toy(http, rows), **ways)
            assert result.as_numpy("s").tolist() == SUMS * 400, way
            assert len(result.as_numpy("parent")) == 1_200
    with grpc.InferenceServerClient(GRPC) as client:
        for way in ["gzip", "deflate"]:
            result = client.infer("toy", toy(grpc, rows), compression_algorithm=way)
            assert result.as_numpy("s").tolist() == SUMS * 400, way
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)), compression_algorithm="gzip")
        client.async_stream_infer("toy", toy(grpc))
        result, error = answers.get(timeout=PATIENCE_S)
        assert error is None, error
        check_toy(result)
        client.stop_stream()


def grpc_unary():
    with grpc.InferenceServerClient(GRPC) as client:
        result = client.infer("toy", toy(grpc), request_id="seven", client_timeout=PATIENCE_S)
        check_toy(result)
        assert result.get_response().id == "seven"
        wanted = [grpc.InferRequestedOutput("s")]
        assert client.infer("toy", toy(grpc), outputs=wanted).as_numpy("parent") is None


def grpc_callbacks():
    answers = queue.Queue()
    with grpc.InferenceServerClient(GRPC) as client:
        for _ in range(32):
            client.async_infer("toy", toy(grpc), lambda result, error: answers.put((result, error)))
        for _ in range(32):
            result, error = answers.get(timeout=PATIENCE_S)
            assert error is None, error
            check_toy(result)


def grpc_stream():
    answers = queue.Queue()
    with grpc.InferenceServerClient(GRPC) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(32):
            client.async_stream_infer("toy", toy(grpc), request_id=str(i), enable_empty_final_response=True)
        client.async_stream_infer("nobody", toy(grpc), request_id="wrong")
        client.async_stream_infer("toy", toy(grpc), request_id="after")
        for i in range(32):
            result, error = answers.get(timeout=PATIENCE_S)
            assert error is None, error
            check_toy(result)
            response = result.get_response()
            assert response.id == str(i) and response.parameters["triton_final_response"].bool_param
        _, error = answers.get(timeout=PATIENCE_S)
        assert "there is no pipeline nobody" in str(error), error
        result, error = answers.get(timeout=PATIENCE_S)
        assert error is None and result.get_response().id == "after", error
        client.stop_stream()


def asyncio_both():
    async def run():
        async with http_aio.InferenceServerClient(HTTP) as client:
            for result in await asyncio.gather(*[client.infer("toy", toy(http)) for _ in range(16)]):
                check_toy(result)
        async with grpc_aio.InferenceServerClient(GRPC) as client:
            for result in await asyncio.gather(*[client.infer("toy", toy(grpc)) for _ in range(16)]):
                check_toy(result)

            async def requests():
                for i in range(8):
                    yield {"model_name": "toy", "inputs": toy(grpc), "request_id": str(i)}

            ids = []
            async for result, error in client.stream_infer(requests()):
                assert error is None, error
                check_toy(result)
                ids.append(result.get_response().id)
            assert ids == [str(i) for i in range(8)], ids

    asyncio.run(run())


def errors_are_told():
    with http.InferenceServerClient(HTTP) as client:
        assert refused("there is no pipeline nobody", lambda: client.infer("nobody", toy(http))).status() == "404"
        wide = toy(http, np.zeros((1, 3), dtype=np.float32))
        assert refused("expected FP32 of shape [-1, 2]", lambda: client.infer("toy", wide)).status() == "400"
        late = lambda: client.infer("slow", toy(http), timeout=1_000, priority=1)
        assert refused("deadline", late).status() == "504"
        refused("no such output", lambda: client.infer("toy", toy(http), outputs=[http.InferRequestedOutput("z")]))
    with grpc.InferenceServerClient(GRPC) as client:
        error = refused("there is no pipeline nobody", lambda: client.infer("nobody", toy(grpc)))
        assert error.status() == "StatusCode.NOT_FOUND", error.status()
        wide = toy(grpc, np.zeros((1, 3), dtype=np.float32))
        error = refused("expected FP32 of shape [-1, 2]", lambda: client.infer("toy", wide))
        assert error.status() == "StatusCode.INVALID_ARGUMENT", error.status()
        error = refused("deadline", lambda: client.infer("slow", toy(grpc), timeout=1_000, priority=1))
        assert error.status() == "StatusCode.DEADLINE_EXCEEDED", error.status()


def priority_overtakes():
    """`slow` runs batches of 4 in 0.4 s: of 16 requests, the last with the highest priority is not answered last."""
    order = queue.Queue()
    one = np.array([[1, 1]], dtype=np.float32)

    def ask(name, **terms):
        def run():
            # A client of this library belongs to one thread.
            with http.InferenceServerClient(HTTP) as client:
                client.infer("slow", toy(http, one), **terms)
                order.put(name)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    threads = [ask("usual", timeout=int(PATIENCE_S * 1e6)) for _ in range(16)]
    time.sleep(0.2)
    threads.append(ask("urgent", priority=1, timeout=int(PATIENCE_S * 1e6)))
    for thread in threads:
        thread.join()
    answered = [order.get() for _ in range(17)]
    assert answered.index("urgent") <= 12, answered
    answers = queue.Queue()
    with grpc.InferenceServerClient(GRPC) as client:
        def ask_grpc(name, **terms):
            client.async_infer("slow", toy(grpc, one), lambda result, error: answers.put((name, error)), **terms)
        for _ in range(16):
            ask_grpc("usual")
        time.sleep(0.2)
        ask_grpc("urgent", priority=1)
        answered = [answers.get(timeout=PATIENCE_S) for _ in range(17)]
    assert all(error is None for _, error in answered), answered
    assert [name for name, _ in answered].index("urgent") <= 12, answered


def needs_choose_variants():
    """Of `pick`, `double` is cheaper and less accurate, and takes 50 ms by the plan."""
    one = np.array([[1, 7]], dtype=np.float32)
    with http.InferenceServerClient(HTTP) as client:
        def ask(**needs):
            result = client.infer("pick", toy(http, one), parameters=needs)
            return result.as_numpy("s").tolist(), result.get_response()["parameters"]
        sums, said = ask(accuracy_min=0.9)
        assert sums == [7.0] and said["variants"] == "split:split,sum:sum" and said["accuracy"] == 0.9, said
        sums, said = ask(accuracy_min=0.3)
        assert sums == [14.0] and said["variants"] == "split:split,sum:double", said
        sums, said = ask(latency_max_us=20_000)
        assert sums == [7.0], said
        error = refused("nearest are split:split,sum:sum with 0.9000", lambda: ask(accuracy_min=0.95))
        assert error.status() == "422", error.status()
        assert refused("expected a part from 0 to 1", lambda: ask(accuracy_min=95)).status() == "400"
        assert "variants" not in client.infer("pick", toy(http, one)).get_response()["parameters"]
    with grpc.InferenceServerClient(GRPC) as client:
        def ask_grpc(**needs):
            result = client.infer("pick", toy(grpc, one), parameters=needs)
            return result.as_numpy("s").tolist(), result.get_response().parameters["variants"].string_param
        assert ask_grpc(accuracy_min="0.9") == ([7.0], "split:split,sum:sum")
        assert ask_grpc(latency_max_us=20_000) == ([7.0], "split:split,sum:sum")
        assert ask_grpc(accuracy_min="0.3") == ([14.0], "split:split,sum:double")
        error = refused("nearest are", lambda: ask_grpc(accuracy_min="0.95"))
        assert error.status() == "StatusCode.FAILED_PRECONDITION", error.status()


CASES = [
    http_says_what_is_here,
    grpc_says_what_is_here,
    http_binary,
    http_json,
    http_mixed_and_filtered,
    http_every_datatype,
    grpc_every_datatype,
    http_threads,
    bodies_are_compressed,
    grpc_unary,
    grpc_callbacks,
    grpc_stream,
    asyncio_both,
    errors_are_told,
    priority_overtakes,
    needs_choose_variants,
]

for case in CASES:
    case()
    print(f"ok {case.__name__}", flush=True)
print(f"all {len(CASES)}")
