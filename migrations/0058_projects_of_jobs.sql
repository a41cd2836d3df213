-- The project of a job's plan: open plans are counted by project, and projects take turns at the workers.
alter table jobs add column project text;            -- null: no project's alone
update jobs set project = plans.project from plans where plans.id = jobs.plan;
alter table analysis_jobs add column project text;   -- always null: no project has analyses
