-- The names of a plan's pipelines, so that a list of plans can be searched by them.
alter table plans add column pipelines text[] not null default '{}';
update plans set pipelines = array(
    select p ->> 'name' from jsonb_array_elements(problem -> 'pipelines') with ordinality as listed (p, place)
    order by place
) where jsonb_typeof(problem -> 'pipelines') = 'array';
