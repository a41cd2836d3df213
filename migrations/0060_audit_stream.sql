-- The numbers of audit entries follow their commits, and no event has the same number: a webhook that gets both has one
-- order. An entry is committed by itself, so nothing waits for anything else behind the lock of the events.
alter table audit add column number bigint;     -- null: from before there were numbers

create function number_audit_entry() returns trigger language plpgsql as $$
begin
    if new.number is null then
        perform pg_advisory_xact_lock(7021130294);
        new.number := nextval(pg_get_serial_sequence('events', 'id'));
        perform pg_notify('apportion_events', '');
    end if;
    return new;
end $$;
create trigger number_audit_entry before insert on audit for each row execute function number_audit_entry();

create index audit_number on audit (number);
