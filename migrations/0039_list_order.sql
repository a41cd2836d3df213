-- Lists begin after the key of a row, in the order of an index. The keys of all lists are primary keys; these are for filters.
create index decisions_pipeline on decisions (pipeline, id);
create index plans_state on plans (state, id);
create index events_kind on events (kind, id);
-- Plans are inserted one at a time, and a list does not wait for a backlog of the index.
create index plans_pipelines on plans using gin (pipelines) with (fastupdate = off);
