-- The fleet's authorities, which sign the certificates of agents. Their keys are secret. The newest two count. Agents hear of an
-- authority before it signs, so that they trust the certificates that others show.
create table fleet_authorities (
    number      bigint generated always as identity primary key,
    certificate bytea not null,
    key         bytea not null,
    signs_from  timestamptz not null,
    -- when the next one is made
    renew_at    timestamptz not null,
    ends_at     timestamptz not null
);

-- Certificates name it. An agent that was deleted and joins again has another identity, so its old certificate is refused.
alter table agents add column identity uuid not null default gen_random_uuid();

-- How connections between agents are protected: the leader writes it, and each process sends it to its agents.
create table link_settings (
    is_only boolean primary key default true check (is_only),
    tls     boolean not null default false,
    version bigint not null default 1
);
insert into link_settings default values;
