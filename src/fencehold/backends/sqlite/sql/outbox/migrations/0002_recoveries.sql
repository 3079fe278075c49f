-- How many tries in a row, up to now, ended with a lapsed lease. NULL: every one of them, no try has failed; so what a process
-- of the version before recovered counts, too.
ALTER TABLE fencehold_outbox ADD COLUMN recoveries INTEGER;
