-- What the plan in force and the new one would have cost, where that decided: {"seconds", "in_force_per_hour", "new_per_hour",
-- "change_per_hour"}.
alter table decisions add column costs jsonb;
