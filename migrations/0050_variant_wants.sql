-- Variants that requests wait for at agents, until the leader has looked at them. Agents say each again while requests wait.
create table variant_wants (
    pipeline        text not null,
    groups          bigint[] not null,          -- numbers of offered groups of the target, in their order
    accuracy_min    double precision not null,  -- what the first request asks for; 0: any
    latency_ms_max  double precision,           -- null: any
    variants        text[] not null,            -- names that it gives
    wanted_at       timestamptz not null default now(),
    primary key (pipeline, groups)
);
