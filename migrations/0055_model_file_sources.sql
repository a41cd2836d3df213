-- Where a model file came from, as its uploader said, and who uploaded it.
alter table model_files
    add column source text check (char_length(source) between 1 and 1000),
    add column stored_by text;
