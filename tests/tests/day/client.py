"""A day of an operator through the client that was generated from the service's description, as in `tests/tests/day.rs`.

Arguments: the service's URL, a folder with `pipeline.json` and `read-s.onnx`, the hardware type of the agents. The first
step that fails ends the program with its name and the answer.
"""

import hashlib
import io
import json
import sys
import time
from http import HTTPStatus
from pathlib import Path

import httpx
from apportion_client import AuthenticatedClient, Client
from apportion_client.api.access import get_access, list_audit, list_tokens, post_token, revoke_token
from apportion_client.api.files import get_file, put_file
from apportion_client.api.fleet import (
    delete_fleet_hold,
    delete_schedule,
    diff_targets,
    get_schedule,
    get_target,
    list_agents,
    list_holds,
    list_schedules,
    list_targets,
    put_fleet_hold,
    put_schedule,
    put_target,
    roll_back_target,
    stream_events,
)
from apportion_client.api.pipelines import (
    delete_pipeline,
    get_pipeline,
    get_profiles,
    list_pipelines,
    put_pipeline,
    put_profiles,
)
from apportion_client.api.plans import list_plans, post_plan
from apportion_client.models import (
    AgentState,
    EventDocument,
    HoldRequest,
    MeasuredRow,
    MeasuredVariant,
    PlannedPipeline,
    PlanRequest,
    PlanState,
    ProfileSet,
    Refusal,
    RegisteredPipeline,
    ReplanMode,
    ReplicaFate,
    RollbackRequest,
    ScheduledReplan,
    ScheduleSpec,
    Scope,
    TargetChange,
    TargetDocument,
    TargetRequest,
    TokenRequest,
)
from apportion_client.types import File

# How long a step waits before it gives up.
PATIENCE_S = 90.0

base, folder, hardware = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
client = Client(base_url=base, timeout=httpx.Timeout(PATIENCE_S), raise_on_unexpected_status=True)
done = 0


def check(step, holds, found=""):
    global done
    if not holds:
        sys.exit(f"step {done + 1}, {step}: {found}")
    done += 1
    print("ok", step)


def answered(step, answer, status):
    """The body of an answer with this status."""
    check(step, answer.status_code == status, (answer.status_code, answer.content))
    return answer.parsed


def refused(step, answer, status, part):
    """Checks a refusal: its status, and that it says `part`."""
    refusal = answered(step, answer, status)
    check(f"{step}: the reason", isinstance(refusal, Refusal) and part in str(refusal.to_dict()), refusal)


def register():
    """The pipeline `one` with its model file and its profile; it is changed once."""
    model = (folder / "read-s.onnx").read_bytes()
    digest = hashlib.sha256(model).hexdigest()
    for step, status in [("a file is stored", HTTPStatus.CREATED), ("it is there already", HTTPStatus.OK)]:
        answer = put_file.sync_detailed(digest, client=client, body=File(payload=io.BytesIO(model)))
        stored = answered(step, answer, status)
        check(f"{step}: its size", (stored.sha256, stored.bytes_) == (digest, len(model)), stored)
    kept = answered("a file is read back", get_file.sync_detailed(digest, client=client), HTTPStatus.OK)
    check("its bytes are the same", kept.payload.read() == model)

    pipeline = RegisteredPipeline.from_dict(json.loads((folder / "pipeline.json").read_text()))
    pipeline.tasks[0].variants[0].model_digest = digest
    first = put_pipeline.sync_detailed("one", client=client, body=pipeline)
    answered("a pipeline is registered", first, HTTPStatus.CREATED)
    rows = [
        MeasuredRow(task="read", variant="read-s", hardware=hardware, batch=batch, latency_ms=latency_ms)
        for batch, latency_ms in [(1, 5.0), (4, 8.0)]
    ]
    profile = ProfileSet(rows=rows, variants=[MeasuredVariant(task="read", variant="read-s", accuracy=0.9)])
    answered("a profile is registered", put_profiles.sync_detailed("one", client=client, body=profile), HTTPStatus.OK)
    found = get_profiles.sync("one", client=client)
    check("the profile is read back", [(row.batch, row.latency_ms) for row in found.rows] == [(1, 5.0), (4, 8.0)], found)

    pipeline.slo_ms = 1_500.0
    old = first.headers["etag"]
    changed = put_pipeline.sync_detailed("one", client=client, body=pipeline, if_match=old)
    answered("a pipeline is changed", changed, HTTPStatus.OK)
    check("its tag is another", changed.headers["etag"] != old, changed.headers)
    late = put_pipeline.sync_detailed("one", client=client, body=pipeline, if_match=old)
    refused("an old tag changes nothing", late, HTTPStatus.PRECONDITION_FAILED, "pipeline one")
    check("the change is read back", get_pipeline.sync("one", client=client).slo_ms == 1_500.0)
    other = put_pipeline.sync_detailed("two", client=client, body=pipeline)
    refused("a name is that of the path", other, HTTPStatus.UNPROCESSABLE_ENTITY, "/name")
    listed = [(row.name, row.replan, row.profiled) for row in list_pipelines.sync(client=client)]
    check("pipelines are listed", listed == [("one", ReplanMode.OFF, True)], listed)


class Watch:
    """The targets of the stream of events, as they come."""

    def __init__(self):
        watching = Client(base_url=base, timeout=httpx.Timeout(PATIENCE_S))
        # The generated function reads an answer to its end, which this one has not: only its request is used.
        request = stream_events._get_kwargs(kind="target")
        self.stream = watching.get_httpx_client().stream(**request)
        self.lines = self.stream.__enter__().iter_lines()
        check("the stream of events begins", next(self.lines) == ": here")

    def next(self):
        """The next event."""
        for line in self.lines:
            if line.startswith("data: "):
                return EventDocument.from_dict(json.loads(line.removeprefix("data: ")))
        sys.exit("the stream of events has ended")


def planned(demand_qps, key):
    """The identifier of a plan for this demand."""
    asked = PlanRequest(pipelines=[PlannedPipeline(name="one", demand_qps=demand_qps)])

    def ask(step):
        answer = post_plan.sync_detailed(client=client, body=asked, prefer="wait=60", idempotency_key=key)
        return answered(step, answer, HTTPStatus.OK)

    made, again = ask("a plan is made"), ask("it is asked for again")
    has_replicas = made.state == PlanState.SUCCEEDED and made.plan.pipelines[0].assignments[0].replicas > 0
    check("the plan has succeeded", has_replicas, made)
    check("one key makes one plan", again.id == made.id, (again.id, made.id))
    return made.id


def generation():
    return get_target.sync(client=client).generation


def wait_until_applied(wanted):
    """Waits until each agent says that it serves this generation."""
    begun = time.monotonic()
    while True:
        agents = list_agents.sync(client=client, state=AgentState.LIVE)
        if agents and all(agent.ack and agent.ack.generation == wanted and agent.ack.applied for agent in agents):
            return check(f"agents serve target {wanted}", True)
        if time.monotonic() - begun > PATIENCE_S:
            check(f"agents serve target {wanted}", False, agents)
        time.sleep(0.1)


def deploy(watch):
    """Plans, a dry run, two targets, and the way back."""
    first = planned(5.0, "first")
    listed = [plan.id for plan in list_plans.sync(client=client, pipeline="one", state=PlanState.SUCCEEDED)]
    check("plans are listed", listed == [first], listed)
    check("no plan has failed", list_plans.sync(client=client, state=PlanState.FAILED) == [])

    target = TargetRequest(plans=[first])
    dry = put_target.sync_detailed(client=client, body=target, if_match='"0"', dry_run=True)
    change = answered("a dry run is answered", dry, HTTPStatus.OK)
    is_change = isinstance(change, TargetChange) and (change.from_, change.to, change.changed) == (0, 1, True)
    check("it is a change", is_change, change)
    loads = {(replica.fate, replica.pipeline, replica.variant) for replica in change.replicas}
    check("it loads read-s", loads == {(ReplicaFate.LOADED, "one", "read-s")}, loads)
    check("a dry run deploys nothing", generation() == 0)

    applied = put_target.sync_detailed(client=client, body=target, if_match='"0"')
    applied = answered("a target is applied", applied, HTTPStatus.OK)
    is_first = isinstance(applied, TargetDocument) and (applied.generation, applied.plans) == (1, [first])
    check("it is the first", is_first, applied)
    event = watch.next()
    seen = (event.kind, event.detail["generation"], event.detail["plans"])
    check("its event comes", seen == ("target", 1, [str(first)]), event)
    wait_until_applied(1)

    second = planned(7.0, "second")
    target = TargetRequest(plans=[second])
    late = put_target.sync_detailed(client=client, body=target, if_match='"0"')
    refused("a target that was replaced", late, HTTPStatus.PRECONDITION_FAILED, "generation is 1 by now")
    applied = put_target.sync_detailed(client=client, body=target, if_match='"1"')
    answered("a second target is applied", applied, HTTPStatus.OK)
    check("it is in force", generation() == 2)
    back = roll_back_target.sync_detailed(client=client, body=RollbackRequest(), if_match='"2"')
    back = answered("a rollback is applied", back, HTTPStatus.OK)
    check("the first plan is back", (back.generation, back.plans) == (3, [first]), back)
    passed = [watch.next().detail["generation"] for _ in range(2)]
    check("the events of both come", passed == [2, 3], passed)
    former = [(row.generation, row.plans) for row in list_targets.sync(client=client)]
    check("the history has all targets", former == [(3, [first]), (2, [second]), (1, [first])], former)
    difference = diff_targets.sync(client=client, from_=2, to=3)
    check("a difference is told", (difference.from_, difference.to, difference.plans) == (2, 3, [first]), difference)

    check("a rollback holds the fleet", len(list_holds.sync(client=client)) == 1)
    answered("the hold is released", delete_fleet_hold.sync_detailed(client=client), HTTPStatus.NO_CONTENT)
    check("no hold is left", list_holds.sync(client=client) == [])
    kept = delete_pipeline.sync_detailed("one", client=client)
    refused("a deployed pipeline stays", kept, HTTPStatus.CONFLICT, "pipeline one is deployed")


def schedule():
    spec = ScheduleSpec(pipeline="one", cron="50 8 * * 1-5", replan=ScheduledReplan(demand_qps=6.0, hold_s=0))
    for step, status in [("a schedule is written", HTTPStatus.CREATED), ("it is written again", HTTPStatus.OK)]:
        answered(step, put_schedule.sync_detailed("peak", client=client, body=spec), status)
    rows = list_schedules.sync(client=client)
    listed = [(row.name, row.spec.pipeline, row.spec.replan.demand_qps, row.made_by) for row in rows]
    check("schedules are listed", listed == [("peak", "one", 6.0, "loopback")], listed)
    due = [(at.hour, at.minute, at.weekday() < 5) for at in rows[0].next_]
    check("its due times are those of the rule", due == [(8, 50, True)] * 5, rows[0].next_)
    answered("a schedule is deleted", delete_schedule.sync_detailed("peak", client=client), HTTPStatus.NO_CONTENT)
    refused("it is gone", get_schedule.sync_detailed("peak", client=client), HTTPStatus.NOT_FOUND, "schedule peak")


def revoke():
    asked = TokenRequest(name="anna", scope=Scope.READ)
    issued = answered("a token is made", post_token.sync_detailed(client=client, body=asked), HTTPStatus.CREATED)
    anna = AuthenticatedClient(base_url=base, token=issued.token, raise_on_unexpected_status=True)
    own = get_access.sync(client=anna)
    check("the token says who it is", (own.name, own.scope, own.token) == ("anna", Scope.READ, issued.id), own)
    states = [agent.state for agent in list_agents.sync(client=anna)]
    check("its client reads", states == [AgentState.LIVE], states)
    hold = HoldRequest(reason="no right")
    held = put_fleet_hold.sync_detailed(client=anna, body=hold)
    refused("its client holds nothing", held, HTTPStatus.FORBIDDEN, "expected apply")
    answered("the token is revoked", revoke_token.sync_detailed(issued.id, client=client), HTTPStatus.NO_CONTENT)
    refused("it counts no more", list_agents.sync_detailed(client=anna), HTTPStatus.UNAUTHORIZED, "revoked")
    rows = [(row.name, row.revoked_at is not None) for row in list_tokens.sync(client=client)]
    check("tokens are listed", rows == [("anna", True)], rows)
    changes = [(row.who, row.method, row.path, row.status) for row in list_audit.sync(client=client)]
    check("the audit has the refused hold", ("anna", "PUT", "/v1/hold", HTTPStatus.FORBIDDEN) in changes, changes)
    check("the audit has the rollback", ("loopback", "POST", "/v1/target/rollback", HTTPStatus.OK) in changes, changes)


register()
watch = Watch()
deploy(watch)
schedule()
revoke()
print("all", done)
