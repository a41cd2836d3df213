-- What has happened, in the order of the commits: a reader that has seen one number has seen all below it.
create table events (
    id        bigint generated always as identity primary key,
    made_at   timestamptz not null,
    kind      text not null,
    pipeline  text,                           -- null: it concerns no single pipeline
    detail    jsonb not null
);
create index events_pipeline on events (pipeline, id);

-- The lock makes the numbers follow the commits. The triggers below run at the end of their transaction, so that nothing
-- waits for anything else behind this lock.
create function note_event(kind text, pipeline text, detail jsonb) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(7021130294);
    insert into events (made_at, kind, pipeline, detail) values (clock_timestamp(), kind, pipeline, detail);
    perform pg_notify('apportion_events', '');
end $$;

create function note_target() returns trigger language plpgsql as $$
begin
    perform note_event('target', null, jsonb_build_object(
        'generation', new.generation, 'plans', new.plans, 'reason', new.reason));
    return null;
end $$;
create constraint trigger note_target after insert on target_history
    deferrable initially deferred for each row execute function note_target();

create function note_decision() returns trigger language plpgsql as $$
begin
    perform note_event('decision', new.pipeline, jsonb_build_object(
        'id', new.id, 'decision', new.decision, 'reason', new.reason, 'demand_qps', new.demand_qps, 'plan', new.plan));
    return null;
end $$;
create constraint trigger note_decision after insert on decisions
    deferrable initially deferred for each row execute function note_decision();

create function note_plan() returns trigger language plpgsql as $$
begin
    perform note_event('plan', null, jsonb_build_object('id', new.id, 'state', new.state, 'error', new.error));
    return null;
end $$;
create constraint trigger note_plan after update of state on plans
    deferrable initially deferred for each row
    when (old.state is distinct from new.state and new.state not in ('queued', 'solving')) execute function note_plan();

create function note_agent() returns trigger language plpgsql as $$
begin
    perform note_event('agent', null, jsonb_build_object('number', new.number, 'name', new.name, 'state', new.state));
    return null;
end $$;
create constraint trigger note_agent after insert on agents
    deferrable initially deferred for each row execute function note_agent();
create constraint trigger note_agent_state after update of state on agents
    deferrable initially deferred for each row
    when (old.state is distinct from new.state) execute function note_agent();

create function note_hold() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        perform note_event('release', nullif(old.pipeline, ''), jsonb_build_object('reason', old.reason));
    else
        perform note_event('hold', nullif(new.pipeline, ''), jsonb_build_object(
            'reason', new.reason, 'until', new.until, 'made_by', new.made_by));
    end if;
    return null;
end $$;
create constraint trigger note_hold after insert or update or delete on holds
    deferrable initially deferred for each row execute function note_hold();
