"""Checks exported files as their readers do: `validate.py KIND FOLDER`. Prints `ok PATH` for each file."""

import json
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


def fits(name: str, value: object) -> None:
    import jsonschema

    schema = json.loads((pathlib.Path(__file__).parent / f"{name}.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(value)


def compose() -> None:
    path = folder / "compose.yaml"
    fits("compose", yaml.safe_load(path.read_text()))
    print("ok", path)


def scaled_objects() -> None:
    for path in sorted(folder.rglob("*.yaml")):
        for value in yaml.safe_load_all(path.read_text()):
            if value["kind"] == "ScaledObject":
                fits("scaled_object", value)
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


{"triton": triton, "compose": compose, "ray": ray, "scaled-objects": scaled_objects}[kind]()
