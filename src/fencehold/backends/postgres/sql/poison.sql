-- name: poison
-- Aborts the caller's transaction, so that nothing it wrote before the refused fence can be committed.
DO $body$ BEGIN RAISE EXCEPTION 'fencehold: the lease is lost, this transaction cannot commit'; END $body$;
