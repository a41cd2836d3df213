-- The last replicas that this agent could not load, or that died there, the newest last: [{"replica", "pipeline",
-- "task", "variant", "device", "error", "generation", "at"}]. An acknowledgement is replaced by the next one; this stays.
alter table agents add column load_failures jsonb not null default '[]';
