-- Where a model file came from, as its uploader said, and who uploaded it.
alter table model_files
    add column source text check (char_length(source) between 1 and 1000),
    add column stored_by text;

-- The bytes of model files, where service processes share them through the database. They are compressed already.
create table model_file_parts (
    sha256   text not null references model_files on delete cascade,
    part     integer not null check (part >= 0),
    content  bytea not null,
    primary key (sha256, part)
);

alter table model_file_parts alter column content set storage external;
