-- name: tokens_given
-- only: sqlite, because it has no sequences. Runs in the transaction of the grant, after it.
UPDATE fencehold_items_token SET token = token + :count;
