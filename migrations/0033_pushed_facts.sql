-- The newest demand and deployment of pipelines without agents that clients have posted.
create table pushed_facts (
    pipeline    text not null references pipelines (name) on delete cascade,
    kind        text not null check (kind in ('demand', 'deployment')),
    value       jsonb not null,
    seen_at     timestamptz not null,
    primary key (pipeline, kind)
);
-- The deployment as it was seen last, with its figures beside those of the advice; null before the first.
alter table advice add column deployment jsonb;
-- Why the deployment is not known now; null: it is known, or nobody asks for it.
alter table advice add column deployment_unknown text;
