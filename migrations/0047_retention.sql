-- Rows that are deleted by age, in small batches, and lists of many rows.
--
-- Arrivals are the most rows: one for each pipeline and second. They are partitioned by time, so that the oldest go with
-- their file, and nothing has to be vacuumed. Readers and writers of the release before use the table as it was. The rows
-- so far are the first partition. A partition ends at a multiple of six hours and has this second in its name. Rows of a
-- time without a partition are in `arrivals_other`.
do $$
declare
    span  constant bigint := 21600;
    ends  bigint;
    first text;
begin
    lock table arrivals in access exclusive mode;
    select (greatest(floor(extract(epoch from clock_timestamp()))::bigint, coalesce(max(second), 0)) / span + 1) * span
    into ends from arrivals;
    first := 'arrivals_until_' || ends;
    execute format('alter table arrivals rename constraint arrivals_pkey to %I', first || '_pkey');
    execute format('alter table arrivals rename to %I', first);
    execute format('create table arrivals (like %I) partition by range (second)', first);
    alter table arrivals add primary key (pipeline, second);
    -- The leader reads the last seconds of all pipelines.
    create index arrivals_second on arrivals (second);
    execute format('alter table arrivals attach partition %I for values from (minvalue) to (%s)', first, ends);
    create table arrivals_other partition of arrivals default;
end $$;

-- Makes the partition of the seconds from `begins` (included) to `ends` (excluded); returns whether it did. Nothing is made
-- for a time that has a partition, or that has rows in `arrivals_other`.
create function add_arrivals_partition(begins bigint, ends bigint) returns boolean language plpgsql as $$
declare
    named constant text := 'arrivals_until_' || ends;
begin
    if to_regclass(named) is not null then
        return false;
    end if;
    perform set_config('lock_timeout', '1s', true);
    execute format('create table %I (like arrivals including indexes)', named);
    execute format('alter table arrivals attach partition %I for values from (%s) to (%s)', named, begins, ends);
    return true;
exception when check_violation or invalid_object_definition or lock_not_available or duplicate_table then
    return false;
end $$;

-- Drops one partition whose seconds are all before `before`; returns about how many rows it had, or null if there is none,
-- or if others keep it busy. A statement of others waits for a moment only.
create function drop_arrivals_partition(before bigint) returns bigint language plpgsql as $$
declare
    oldest record;
begin
    select c.relname as named, greatest(c.reltuples, 0)::bigint as about into oldest
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'arrivals'::regclass and c.relname ~ '^arrivals_until_[0-9]+$'
    and substr(c.relname, 16)::bigint <= before
    order by substr(c.relname, 16)::bigint limit 1;
    if not found then
        return null;
    end if;
    perform set_config('lock_timeout', '1s', true);
    execute format('drop table %I', oldest.named);
    return oldest.about;
exception when lock_not_available then
    return null;
end $$;

-- Whether anything refers to a plan is asked before it is deleted, and what goes with it is found.
create index target_history_plans on target_history using gin (plans) with (fastupdate = off);
create index decisions_plan on decisions (plan) where plan is not null;
create index idempotency_plan on idempotency (plan);
create index advice_plan on advice (plan) where plan is not null;

-- The oldest rows of tables whose keys do not follow the time.
create index schedule_firings_fired on schedule_firings (fired_at);
create index machines_ended on machines (stage_at) where stage = 'ended';

-- Filters of lists.
create index decisions_decision on decisions (decision, id);
create index machines_hardware on machines (hardware, name);
create index machines_stage on machines (stage, name);
create index agents_state on agents (state, number);
-- The leader reads the pipelines that are replanned, several times a second.
create index pipelines_replan on pipelines (name) where spec ? 'replan';

-- Deleted rows leave room for new ones soon. The usual setting waits for a fifth of a table.
alter table events set (autovacuum_vacuum_scale_factor = 0.02);
alter table decisions set (autovacuum_vacuum_scale_factor = 0.02);
alter table audit set (autovacuum_vacuum_scale_factor = 0.02);
alter table plans set (autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
alter table analyses set (autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
alter table target_history set (autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
