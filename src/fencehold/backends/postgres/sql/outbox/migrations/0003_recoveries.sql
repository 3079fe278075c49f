-- How many tries in a row, up to now, ended with a lapsed lease. NULL: every one of them, no try has failed. So a row of an
-- event that never fails is as long as before, and what a process of the version before recovered counts, too.
ALTER TABLE fencehold_outbox ADD COLUMN recoveries smallint;
