-- The project of a job's plan: open plans are counted by project, and projects take turns at the workers.
alter table jobs add column project text;            -- null: no project's alone
update jobs set project = plans.project from plans where plans.id = jobs.plan;
alter table analysis_jobs add column project text;   -- always null: no project has analyses

-- Why a client asked for a change, and the form of the resource before and after it.
alter table audit
    add column why     text check (char_length(why) between 1 and 500),
    add column before  jsonb,        -- null: there was none, nothing has changed, or the operation is on no such resource
    add column after   jsonb;

-- The newest simulation of a plan.
create index analyses_of_plan on analyses ((request ->> 'plan'), id) where kind = 'simulation';
