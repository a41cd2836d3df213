-- Where clients reach an agent's gateway by gRPC; empty for an agent that has none.
alter table agents add column ingress_grpc text not null default '';
