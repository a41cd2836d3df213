-- Where agents and machines stand: machines of one zone may fail together. And what spot machines are expected to lose.
alter table agents add column zone text not null default '';   -- as the agent says; empty: it says none

alter table machines add column zone text;                     -- that it was asked for in; null: in any

alter table hardware
    add column zones           text[] not null default '{}',   -- where machines of it are asked for, in turns; empty: anywhere
    add column hazard_per_hour double precision check (hazard_per_hour >= 0); -- losses of one spot machine; null: not spot
