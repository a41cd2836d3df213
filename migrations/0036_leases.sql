-- Which process may do the work that only one process may do. The epoch grows with each change of the holder, and each
-- write of a holder names it. The time is that of this database's clock.
create table leases (
    name       text primary key,
    holder     uuid not null,
    epoch      bigint not null,
    expires_at timestamptz not null
);
