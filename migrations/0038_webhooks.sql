-- Receivers of events over HTTP. Each has the events in the order of their numbers.
create table webhooks (
    name           text primary key,
    url            text not null,
    kinds          text[],                    -- null: events of every kind
    pipeline       text,                      -- null: events of all pipelines, and those of none
    enabled        boolean not null,
    secret         bytea not null,            -- the key of the signatures; the service needs it itself
    version        bigint not null default 1,
    made_by        text not null,
    updated_at     timestamptz not null,
    sent_until     bigint not null,           -- no event up to this one waits: delivered, skipped, or not asked for
    attempts       integer not null default 0,    -- failed attempts of the next event
    next_at        timestamptz,               -- null: at once
    delivered      bigint not null default 0,     -- events
    failures       bigint not null default 0,     -- attempts
    skipped        bigint not null default 0,     -- events that were given up
    last_error     text,
    last_error_at  timestamptz
);
