-- Why a client asked for a change, and the form of the resource before and after it.
alter table audit
    add column why     text check (char_length(why) between 1 and 500),
    add column before  jsonb,        -- null: there was none, nothing has changed, or the operation is on no such resource
    add column after   jsonb;
