-- Times at which pipelines are planned again, or at which a hold begins.
create table schedules (
    name        text primary key,
    spec        jsonb not null,
    version     bigint not null default 1,
    made_by     text not null,
    updated_at  timestamptz not null,         -- intervals count from here
    next_at     timestamptz                   -- null: it never fires
);
create index schedules_next on schedules (next_at);

-- One row for each firing. The key makes it one firing for a due time, whichever process leads.
create table schedule_firings (
    schedule    text not null references schedules on delete cascade,
    due_at      timestamptz not null,
    spec        jsonb not null,               -- as it was when it fired
    fired_at    timestamptz not null,
    skipped     integer not null,             -- due times since the last firing that got none
    state       text not null check (state in ('pending', 'done', 'failed', 'missed')),
    detail      text not null,
    primary key (schedule, due_at)
);
create index schedule_firings_pending on schedule_firings (fired_at) where state = 'pending';

create function note_schedule() returns trigger language plpgsql as $$
begin
    perform note_event('schedule', new.spec ->> 'pipeline', jsonb_build_object(
        'schedule', new.schedule, 'due_at', new.due_at, 'fired_at', new.fired_at, 'skipped', new.skipped,
        'state', new.state, 'detail', new.detail));
    return null;
end $$;
create constraint trigger note_schedule after insert on schedule_firings
    deferrable initially deferred for each row execute function note_schedule();
create constraint trigger note_schedule_state after update of state on schedule_firings
    deferrable initially deferred for each row
    when (old.state is distinct from new.state) execute function note_schedule();
