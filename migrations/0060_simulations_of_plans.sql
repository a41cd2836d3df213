-- The newest simulation of a plan.
create index analyses_of_plan on analyses ((request ->> 'plan'), id) where kind = 'simulation';
