-- What runs the variants of an agent: an agent before another server has no slots for continuous tasks.
alter table agents add column backend text not null default '';   -- empty: an agent of a release that does not say it
