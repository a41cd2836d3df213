-- Devices of a hardware type that pipelines without agents may be planned for; null: none.
alter table hardware add column count_max integer check (count_max >= 0);
-- What is advised for a pipeline whose demand a Prometheus says.
create table advice (
    pipeline    text primary key references pipelines (name) on delete cascade,
    plan        uuid references plans (id) on delete set null,  -- the last advice; null before the first
    demand_qps  double precision not null,     -- as it was seen last
    seen_at     timestamptz not null,          -- the moment of the newest sample behind it
    unknown     text                           -- why the demand is not known now; null: it is known
);
