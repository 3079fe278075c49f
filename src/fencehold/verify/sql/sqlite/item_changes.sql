-- name: item_changes
SELECT item_id, was_holder, was_token, was_live, holder, token, is_save, document
  FROM verify_item_changes ORDER BY seq
