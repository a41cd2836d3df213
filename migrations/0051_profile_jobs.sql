-- Jobs that have agents measure variants. A release that does not know them leaves their devices alone, because it places
-- replicas as before: agents then yield the device to the replica.
create table profile_jobs (
    id           uuid primary key,            -- version 7: sorts by creation
    pipeline     text not null references pipelines (name) on delete cascade,
    state        text not null check (state in ('queued', 'running', 'done', 'failed', 'cancelled')),
    request      jsonb not null,              -- with its defaults, all variants and hardware types by name
    reason       text not null,               -- who asked for it, or which drift
    error        text,
    ready        integer not null default 0,  -- variants that are complete, each on one hardware type
    total        integer not null,
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz
);
create index profile_jobs_open on profile_jobs (id) where state in ('queued', 'running');
create index profile_jobs_pipeline on profile_jobs (pipeline, id);

-- What was measured. A job that goes on after a restart does not measure it again.
create table profile_job_points (
    job       uuid not null references profile_jobs (id) on delete cascade,
    hardware  text not null,
    task      text not null,
    variant   text not null,
    batch     integer not null,
    measured  jsonb,                          -- the row of the profile; null: it could not be measured
    error     text,
    primary key (job, hardware, task, variant, batch)
);

-- Devices that measure for a job. No replica is placed there meanwhile. An agent measures for one claim at a time.
create table device_claims (
    claim       bigint generated always as identity primary key,
    job         uuid not null references profile_jobs (id) on delete cascade,
    hardware    text not null,
    agent       bigint not null unique references agents (number) on delete cascade,
    device      integer not null,
    point       bigint not null default 0,    -- number of its last order
    task        text,                         -- of the order that is not answered yet; null: there is none
    variant     text,
    batch       integer,
    yielded     text,                         -- why the agent gave the device to a replica; null: it did not
    claimed_at  timestamptz not null,
    unique (job, hardware)
);

create table profile_job_idempotency (
    key         text primary key,
    request     text not null,                -- digest of the kind and the body
    job         uuid not null references profile_jobs (id) on delete cascade,
    created_at  timestamptz not null
);
create index profile_job_idempotency_job on profile_job_idempotency (job);

create function note_profile_job() returns trigger language plpgsql as $$
begin
    perform note_event('profile-job', new.pipeline, jsonb_build_object(
        'id', new.id, 'state', new.state, 'error', new.error, 'reason', new.reason));
    return null;
end $$;
create constraint trigger note_new_profile_job after insert on profile_jobs
    deferrable initially deferred for each row execute function note_profile_job();
create constraint trigger note_profile_job after update of state on profile_jobs
    deferrable initially deferred for each row
    when (old.state is distinct from new.state)
    execute function note_profile_job();
