-- Entity tags of hardware types and profiles: counts replacements, as pipelines.version does.
alter table hardware add column version bigint not null default 1;
alter table profiles add column version bigint not null default 1;
