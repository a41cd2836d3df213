"""Checks exported files as their readers do: `validate.py triton|compose|ray FOLDER`. Prints `ok PATH` for each file."""

import pathlib
import sys

import yaml

kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])


def triton() -> None:
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    for path in sorted(folder.rglob("config.pbtxt")):
        config = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
        assert config.name == path.parent.name, path
        assert config.instance_group and all(group.count > 0 for group in config.instance_group), path
        assert all(size <= config.max_batch_size for size in config.dynamic_batching.preferred_batch_size), path
        if (path.parent / "1" / "model.onnx").exists():
            assert config.input and config.output, path
        print("ok", path)


def compose() -> None:
    import json

    import jsonschema

    schema = json.loads((pathlib.Path(__file__).parent / "compose.schema.json").read_text())
    path = folder / "compose.yaml"
    jsonschema.Draft7Validator(schema).validate(yaml.safe_load(path.read_text()))
    print("ok", path)


def ray() -> None:
    from ray.serve.schema import ServeDeploySchema

    path = folder / "serve.yaml"
    config = ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))
    sys.path.insert(0, str(folder))
    from app import build

    for application in config.applications:
        names = {deployment.name for deployment in application.deployments}
        root = build(application.args)
        bound = {node._bound_deployment.name for node in (root, *root._bound_deployment.init_args[1:])}
        assert bound == names, (bound, names)
    print("ok", path)


{"triton": triton, "compose": compose, "ray": ray}[kind]()
