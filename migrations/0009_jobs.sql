-- A worker's death is counted apart from a claim: a job that is put back by a worker that ends in order, or whose database
-- was away, is claimed again and nobody has died of it. `attempts` goes on counting claims: it is the token by which a
-- worker knows its own.
alter table jobs add column deaths integer not null default 0;
update jobs set deaths = greatest(attempts - 1, 0);
-- Whether it may take so long that it must leave places to others.
alter table jobs add column long boolean not null default false;

-- Plans that were cancelled while a worker claimed them lost their job and stayed open for ever.
update plans set
    state = case when cancel then 'cancelled' else 'failed' end,
    error = case when cancel then null else 'its job was lost' end,
    progress = null,
    finished_at = now()
where state in ('queued', 'solving') and not exists (select from jobs where jobs.plan = plans.id);
