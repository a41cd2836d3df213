-- The tables are locked together, or not at all: clients store an analysis before its job, and workers lock the job first.
do $$
begin
    loop
        begin
            perform set_config('lock_timeout', '1s', true);
            lock table jobs, analysis_jobs, audit in access exclusive mode;
            lock table analyses in share mode;
            exit;
        exception when lock_not_available or deadlock_detected then
            -- Clients and workers go on meanwhile.
            perform pg_sleep(0.1);
        end;
    end loop;
    perform set_config('lock_timeout', '0', true);
end $$;

-- The project of a job's plan: open plans are counted by project, and projects take turns at the workers.
alter table jobs add column project text;            -- null: no project's alone
update jobs set project = plans.project from plans where plans.id = jobs.plan;
alter table analysis_jobs add column project text;   -- always null: no project has analyses

-- Why a client asked for a change, and the form of the resource before and after it.
alter table audit
    add column why     text,
    add column before  jsonb,        -- null: there was none, nothing has changed, or the form is not known
    add column after   jsonb;
-- Entries from before have no reason: none is looked at.
alter table audit add constraint audit_why_check check (char_length(why) between 1 and 500) not valid;

-- The newest simulation of a plan.
create index analyses_of_plan on analyses ((request ->> 'plan'), id) where kind = 'simulation';
