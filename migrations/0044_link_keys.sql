-- The fleet's keys, from which the keys of the connections between agents are derived. They are secret. The newest counts, and
-- the one before it, so that agents can connect while the newest is on its way to them.
create table link_keys (
    number  bigint generated always as identity primary key,
    -- 244 random bits of two UUIDs, hashed
    key     bytea not null default sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')),
    made_at timestamptz not null default clock_timestamp(),
    check (octet_length(key) = 32)
);
insert into link_keys default values;
