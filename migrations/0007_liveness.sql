-- Service processes. Each raises its beat as long as it lives; who watches compares beats with a clock of its own, so that
-- no two clocks are ever compared.
create table processes (
    id       uuid primary key,
    beat     bigint not null,
    seen_at  timestamptz not null             -- by this database's clock: for people, and for tidying
);
-- The process that holds the agent's newest stream: only it can say that the agent is silent, as long as it lives itself.
alter table agents add column holder uuid;
-- Agents may still serve the target of an older database. The numbers of this one's groups and replicas begin above all of its,
-- for one takes less than a number each millisecond.
update target set placement = jsonb_set(placement, '{next_id}', to_jsonb(incarnation)) where generation = 0;
