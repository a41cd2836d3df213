-- How far the search for a plan is while it is being solved: {"goal", "value", "bound"}.
alter table plans add column progress jsonb;
