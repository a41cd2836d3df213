-- The bytes of model files, where service processes share them through the database. They are compressed already.
create table model_file_parts (
    sha256   text not null references model_files on delete cascade,
    part     integer not null check (part >= 0),
    content  bytea not null,
    primary key (sha256, part)
);

alter table model_file_parts alter column content set storage external;
