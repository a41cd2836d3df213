-- Projects: the limits that all pipelines of a team have together, and who has devices first. A pipeline names its project
-- in its replan settings. The project `default` need not be here: then it has no limits.
create table projects (
    name      text primary key,
    priority  bigint not null default 0,   -- projects with a higher number have devices first
    quota     jsonb not null,              -- most devices by type and in all, most cost per hour
    version   bigint not null default 1    -- counts its replacements
);
create index pipelines_project on pipelines ((spec -> 'replan' ->> 'project'));

-- The plan that the pipeline would have with all devices of the round to itself; null where none was made.
alter table decisions add column alternative jsonb;
