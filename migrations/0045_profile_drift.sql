-- Batches that ended well, by periods of 5 s: their time beside their time by the profile. Kept for a while only.
create table group_sums (
    period       bigint not null,              -- of 5 s, since the epoch
    pipeline     text not null,
    task         text not null,
    variant      text not null,
    hardware     text not null,
    session      uuid not null,                -- the stream of the agent that reported them
    batches      bigint not null,
    took_ms      double precision not null,
    expected_ms  double precision not null,    -- by the profile of the agents' target
    queries      bigint not null,              -- that ended well; the queries of `child_sums` are theirs
    primary key (period, pipeline, task, variant, hardware, session)
);

-- Queries that these queries made, by the task of the children.
create table child_sums (
    period    bigint not null,
    pipeline  text not null,
    task      text not null,
    variant   text not null,
    child     text not null,
    session   uuid not null,
    queries   bigint not null,
    primary key (period, pipeline, task, variant, child, session)
);

-- Figures that differ from their profile now.
create table drifts (
    pipeline  text not null references pipelines (name) on delete cascade,
    kind      text not null,               -- latency, fanout
    task      text not null,
    variant   text not null,
    place     text not null,               -- the hardware type of a latency, the child task of a fan-out
    factor    double precision not null,   -- measured over profile
    profile   double precision not null,   -- milliseconds for each batch, or queries for each query
    measured  double precision not null,
    since     timestamptz not null,
    primary key (pipeline, kind, task, variant, place)
);
