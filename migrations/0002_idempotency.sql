-- A client that does not know whether its POST arrived may send it again under the same key: it gets the same plan.
create table idempotency (
    key         text primary key,
    request     text not null,                 -- digest of the body: another body under the key is a mistake
    plan        uuid not null references plans (id) on delete cascade,
    created_at  timestamptz not null
);
