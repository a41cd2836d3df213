-- How long messages take from this agent to others, as it measured last: [{"to", "hop_ms", "samples", "at"}], by the other's
-- number. Null: nothing is measured.
alter table agents add column hops jsonb;
-- How long its last replicas took to become ready, the newest last: [{"pipeline", "task", "variant", "hardware",
-- "download_ms", "start_ms", "at"}]. They outlive the process of the agent.
alter table agents add column load_times jsonb not null default '[]';
