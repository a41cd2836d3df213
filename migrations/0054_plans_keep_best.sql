-- A client stops the search for a plan and keeps the best one so far.
alter table plans add column keep_best boolean not null default false;
