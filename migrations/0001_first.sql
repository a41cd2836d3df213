-- Everything durable of the service. A migration is never edited once landed: expand in the next one, contract in one after.
--
-- Documents whose shape the wire crate owns (specs, profiles, problems, plans) are jsonb: their readers validate them, and
-- no query looks inside. What queries look at has a column.

create table hardware (
    name            text primary key,
    price_per_hour  double precision not null check (price_per_hour >= 0),
    memory_mib      double precision check (memory_mib >= 0)
);

create table pipelines (
    name        text primary key,
    spec        jsonb not null,
    version     bigint not null default 1,   -- the entity tag: counts the spec's replacements
    updated_at  timestamptz not null
);

create table profiles (
    pipeline    text primary key references pipelines (name) on delete cascade,
    profile     jsonb not null,
    updated_at  timestamptz not null
);

-- The bytes lie in the data directory under their digest; a row says that they are complete and verified.
create table model_files (
    sha256      text primary key check (sha256 ~ '^[0-9a-f]{64}$'),
    bytes       bigint not null,
    created_at  timestamptz not null
);

create table traces (
    id          uuid primary key,
    name        text not null,
    kind        text not null check (kind in ('arrivals', 'rates')),
    rows        bigint not null,
    csv         text not null,
    created_at  timestamptz not null
);

create table plans (
    id           uuid primary key,            -- version 7: sorts by creation
    state        text not null check (state in ('queued', 'solving', 'succeeded', 'infeasible', 'failed', 'cancelled')),
    problem      jsonb not null,
    options      jsonb not null,
    plan         jsonb,
    error        text,
    cancel       boolean not null default false,
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz
);

-- A job is a plan to be solved. It is deleted with its outcome, in one transaction.
create table jobs (
    plan        uuid primary key references plans (id) on delete cascade,
    attempts    integer not null default 0,
    lease_until timestamptz                   -- null: nobody has it; in the past: who had it is dead
);
create index jobs_lease on jobs (lease_until);

create table agents (
    number       bigint generated always as identity primary key,
    name         text not null unique,
    hardware     text not null,
    devices      integer not null check (devices > 0),
    ingress_http text not null,
    data_address text not null,
    process_id   text not null,
    session      uuid not null,               -- of its newest stream; an older stream's messages count for nothing
    state        text not null check (state in ('live', 'lost', 'left')),
    registered_at timestamptz not null,
    seen_at      timestamptz not null,
    ack          jsonb
);

-- One row: the fleet's target, replaced by compare-and-set on its generation. `composed` is what agents are sent.
create table target (
    only_row     boolean primary key default true check (only_row),
    incarnation  bigint not null,
    generation   bigint not null default 0,
    plans        uuid[] not null default '{}',
    placement    jsonb not null default '{"next_id": 1, "groups": [], "replicas": []}',
    specs        jsonb not null default '{}',
    composed     bytea not null default '',
    reason       text not null default '',
    committed_at timestamptz
);
-- Agents compare incarnations and never go back, so a later database must have a larger one: the time of its creation.
insert into target (incarnation) values ((extract(epoch from clock_timestamp()) * 1000)::bigint);

create table target_history (
    generation   bigint primary key,
    plans        uuid[] not null,
    placement    jsonb not null,
    reason       text not null,
    committed_at timestamptz not null
);

create table arrivals (
    pipeline text not null,
    second   bigint not null,                 -- unix time
    offered  bigint not null,
    ok       bigint not null,
    late     bigint not null,
    dropped  bigint not null,
    failed   bigint not null,
    primary key (pipeline, second)
);

create table decisions (
    id        uuid primary key,
    pipeline  text not null,
    decision  text not null check (decision in ('applied', 'kept', 'advised', 'failed')),
    reason    text not null,
    demand_qps double precision not null,
    plan      uuid,
    made_at   timestamptz not null
);
