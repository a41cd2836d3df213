-- A client reads the best plan so far while a plan is being solved, and stops the search to keep it.
alter table plans
    add column best jsonb,
    add column keep_best boolean not null default false;
