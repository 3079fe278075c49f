-- name: poison
-- Ends the caller's transaction, so that nothing it wrote before the refused fence can be committed.
IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
