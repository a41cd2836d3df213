-- Tokens of the HTTP interface. The secret itself is not stored.
create table tokens (
    id          uuid primary key,             -- version 7: sorts by creation
    name        text not null,
    scope       text not null check (scope in ('read', 'plan', 'apply', 'admin', 'agent')),
    digest      bytea not null,               -- SHA-256 of the secret
    created_by  text not null,
    created_at  timestamptz not null,
    expires_at  timestamptz,                  -- null: never
    revoked_at  timestamptz                   -- null: it counts
);

-- While a hold is in force, rounds of replanning deploy nothing for its pipeline.
create table holds (
    pipeline    text primary key,             -- empty: the whole fleet
    reason      text not null,
    until       timestamptz,                  -- null: until it is released
    made_by     text not null,
    made_at     timestamptz not null
);

-- Who asked for which change, and with which result.
create table audit (
    id          uuid primary key,             -- version 7: sorts by time
    made_at     timestamptz not null,
    who         text not null,
    token       uuid,                         -- null: no token of the table
    method      text not null,
    path        text not null,
    status      integer not null
);
