-- Machines with agents that the service asks a substrate for, and gives back. `count_max` of a type with a substrate is the
-- most devices that all its agents may have together.
alter table hardware
    add column substrate             text,              -- null: no machine is asked for
    add column provision_s           double precision check (provision_s >= 0), -- from a wish to its agent, as it was given
    add column provision_measured_s  double precision,  -- the same as a moving mean of machines that came; null before one
    add column wishes_expired        bigint not null default 0,
    add column expired_in_row        integer not null default 0,  -- since the last machine came
    add column retry_at              timestamptz;       -- no wish before this moment; null: at any time

create table machines (
    name        text primary key,          -- its agent has this name too
    hardware    text not null,
    substrate   text not null,
    devices     integer not null,          -- as asked for; once its agent has come, as that says
    stage       text not null,             -- coming, alive, cordoned, ending, ended
    handle      text,                      -- the substrate's name for it; null: it has not answered
    reason      text not null,             -- for its stage
    asked_at    timestamptz not null,
    stage_at    timestamptz not null,      -- when the stage began
    came_at     timestamptz,               -- null: its agent never came
    returned_at timestamptz                -- when the service began to give it back; null: it did not
);
-- What runs is looked at each two seconds. What has ended is kept for a while.
create index machines_open on machines (name) where stage <> 'ended';
create index machines_asked on machines (asked_at);

-- Devices that each pipeline would have if everything that may be had were there, by its last round.
create table machine_wants (
    pipeline  text not null references pipelines (name) on delete cascade,
    hardware  text not null,
    devices   integer not null,
    made_at   timestamptz not null,
    primary key (pipeline, hardware)
);

-- No replica is placed on a cordoned agent: its machine goes back.
alter table agents add column cordoned boolean not null default false;
