"""Calls the service through the client that was generated from its description. Arguments: the service's URL, a folder with documents."""

import json
import sys
from http import HTTPStatus
from pathlib import Path

from apportion_client import Client
from apportion_client.api.fleet import get_target
from apportion_client.api.hardware import get_hardware, put_hardware
from apportion_client.api.pipelines import get_pipeline, get_profiles, put_pipeline, put_profiles
from apportion_client.api.plans import get_plan, list_plans, post_plan
from apportion_client.models import (
    HardwareDocument,
    PlanRequest,
    PlanState,
    ProblemSpec,
    ProfileSet,
    Refusal,
    RegisteredPipeline,
)

base, folder = sys.argv[1], Path(sys.argv[2])
client = Client(base_url=base)
done = 0


def document(name):
    return json.loads((folder / name).read_text())


def check(what, holds):
    global done
    assert holds, what
    done += 1
    print("ok", what)


def body(model, tree):
    """The tree as a model of the client's, which must lose nothing of it."""
    made = model.from_dict(tree)
    assert made.to_dict() == tree, (made.to_dict(), tree)
    return made


hardware = body(HardwareDocument, {"price_per_hour": 2.0})
answer = put_hardware.sync_detailed("demo", client=client, body=hardware)
check("hardware is registered", answer.status_code == HTTPStatus.CREATED)
found = get_hardware.sync("demo", client=client)
check("hardware is read back", (found.name, found.price_per_hour) == ("demo", 2.0))

answer = put_pipeline.sync_detailed("digits", client=client, body=body(RegisteredPipeline, document("spec.json")))
check("a pipeline is registered", answer.status_code == HTTPStatus.CREATED)
found = get_pipeline.sync("digits", client=client)
check("a pipeline is read back", [t.name for t in found.tasks] == ["find", "read"])

put_profiles.sync("digits", client=client, body=body(ProfileSet, document("profiles.json")))
found = get_profiles.sync("digits", client=client)
check("profiles are registered and read back", len(found.rows) == 16)

asked = PlanRequest(problem=body(ProblemSpec, document("problem.json")))
made = post_plan.sync(client=client, body=asked, prefer="wait=60")
check("a plan is made", made.state == PlanState.SUCCEEDED and made.plan.pipelines[0].assignments[0].replicas > 0)
found = get_plan.sync(made.id, client=client)
listed = list_plans.sync(client=client)
check("a plan is read back", found.to_dict() == made.to_dict() and [p.id for p in listed] == [made.id])

answer = get_target.sync_detailed(client=client)
refused = get_hardware.sync("nothing", client=client)
check("a refusal is a problem document", answer.headers["etag"] == '"0"' and isinstance(refused, Refusal) and refused.status == 404)
print("all", done)
