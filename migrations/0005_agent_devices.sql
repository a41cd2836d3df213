-- What each device of an agent last said of itself: [{"device", "uuid", "memory_used", "memory_total", "utilisation"}], with what is
-- not known left out. It changes each second and decides nothing, so it has no table of its own.
alter table agents add column device_use jsonb;
