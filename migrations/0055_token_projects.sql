-- A token may be bound to a project. Then it has the pipelines, plans, traces and schedules of this project alone.
alter table tokens add column project text;   -- null: all projects

-- The project of the token that asked for the plan, or the one project of all its pipelines.
alter table plans add column project text;    -- null: no project's alone
create index plans_project on plans (project, id);

-- The project of the token that uploaded the trace.
alter table traces add column project text;   -- null: no project's alone
create index traces_project on traces (project, id);

-- The list of a project's pipelines.
create index pipelines_of_project on pipelines ((coalesce(spec -> 'replan' ->> 'project', 'default')), name);
