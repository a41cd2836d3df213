-- The project of the token that stored a file first: the file counts for its storage.
alter table model_files add column project text;    -- null: no project's alone
create index model_files_of_project on model_files (project) where project is not null;
