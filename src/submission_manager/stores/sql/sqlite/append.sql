-- name: append
-- only: postgres and sqlite, because elsewhere an attempt's write is one batch.
INSERT INTO submission_attempts (intent_id, attempt_number, started_at, finished_at, outcome_status, outcome_reason, error)
VALUES (:id, :number, :started_at, :now, :outcome_status, :outcome_reason, :error);
