-- The requests of one client, and the traces with one name, in the order of their lists.
create index audit_who on audit (who, id);
create index traces_name on traces (name, id);
