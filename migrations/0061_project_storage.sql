-- How much a project may store.
alter table projects add column storage jsonb;      -- null: the limits of a project that names none
