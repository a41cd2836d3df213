-- Simulations, frontiers and comparisons. They run as jobs, as plans do. A release that does not know them leaves their jobs
-- alone, because they have a table of their own.
create table analyses (
    id           uuid primary key,            -- version 7: sorts by creation
    kind         text not null check (kind in ('simulation', 'frontier', 'comparison')),
    state        text not null check (state in ('queued', 'running', 'done', 'failed', 'cancelled')),
    request      jsonb not null,              -- without the documents, which have columns
    problem      jsonb not null,
    plan         jsonb,                       -- the plan file of a simulation
    pipelines    text[] not null,             -- their names
    result       jsonb,
    error        text,
    cancel       boolean not null default false,
    ready        integer not null default 0,  -- points, planners, or percent of a simulation
    total        integer,                     -- null: not known yet
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz
);
create index analyses_kind on analyses (kind, id);
create index analyses_kind_state on analyses (kind, state, id);

-- What is ready of an analysis that has no result. A result has all of it, so these rows are deleted with it.
create table analysis_points (
    analysis    uuid not null references analyses (id) on delete cascade,
    place       integer not null,             -- in the order in which they became ready
    point       jsonb not null,
    primary key (analysis, place)
);

-- The same columns as the table jobs.
create table analysis_jobs (
    analysis    uuid primary key references analyses (id) on delete cascade,
    attempts    integer not null default 0,
    deaths      integer not null default 0,
    long        boolean not null default false,
    lease_until timestamptz                   -- null: nobody has it; in the past: its worker is dead
);
create index analysis_jobs_lease on analysis_jobs (lease_until);

create table analysis_idempotency (
    key         text primary key,
    request     text not null,                -- digest of the kind and the body
    analysis    uuid not null references analyses (id) on delete cascade,
    created_at  timestamptz not null
);
create index analysis_idempotency_analysis on analysis_idempotency (analysis);

create function note_analysis() returns trigger language plpgsql as $$
begin
    perform note_event('analysis', null, jsonb_build_object(
        'id', new.id, 'kind', new.kind, 'state', new.state, 'error', new.error));
    return null;
end $$;
create constraint trigger note_analysis after update of state on analyses
    deferrable initially deferred for each row
    when (old.state is distinct from new.state and new.state not in ('queued', 'running'))
    execute function note_analysis();
