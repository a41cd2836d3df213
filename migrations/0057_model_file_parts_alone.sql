-- The bytes of a large file take long to delete, and nobody should wait for the lock on pipelines meanwhile. So they go in a
-- transaction of their own, after the row of the file.
alter table model_file_parts drop constraint model_file_parts_sha256_fkey;
