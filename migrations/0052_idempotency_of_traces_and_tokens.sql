-- A client that does not know whether its trace arrived, or its request for a token, may send it again under the same key.
create table trace_idempotency (
    key         text primary key,
    request     text not null,                -- digest of the name and the rows
    trace       uuid not null references traces (id) on delete cascade,
    created_at  timestamptz not null
);
create index trace_idempotency_trace on trace_idempotency (trace);
create table token_idempotency (
    key         text primary key,
    request     text not null,                -- digest of the body
    token       uuid not null references tokens (id) on delete cascade,
    created_at  timestamptz not null
);
create index token_idempotency_token on token_idempotency (token);
