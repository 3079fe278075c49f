-- Intents, each with the contract as it stood when it was submitted, and their attempts, which are only ever added.
-- Times are UTC text with milliseconds. modified_seq grows with every write, whatever the clock does: there is one
-- writer at a time, so its order is the order of the commits, and the schedule follows it.
CREATE TABLE submission_intents (
    intent_id              TEXT    NOT NULL PRIMARY KEY COLLATE BINARY CHECK (length(intent_id) BETWEEN 1 AND 200),
    submission_target      TEXT    NOT NULL COLLATE BINARY,
    payload                BLOB,
    payload_hash           BLOB    NOT NULL,
    gateway_type           TEXT    NOT NULL,
    gateway_url            TEXT    NOT NULL,
    policy                 TEXT    NOT NULL,
    max_acceptance_seconds INTEGER,
    max_attempts           INTEGER,
    terminal_outcomes      TEXT    NOT NULL,
    webhook_url            TEXT,
    webhook_headers        TEXT,
    webhook_headers_env    TEXT,
    webhook_secret_env     TEXT,
    webhook_status         TEXT CHECK (webhook_status IN ('pending', 'delivered', 'failed')),
    webhook_attempted_at   TEXT,
    webhook_delivered_at   TEXT,
    webhook_error          TEXT,
    status                 TEXT    NOT NULL CHECK (status IN ('pending', 'accepted', 'rejected', 'exhausted')),
    final_outcome_status   TEXT,
    final_outcome_reason   TEXT,
    exhausted_reason       TEXT,
    attempt_count          INTEGER NOT NULL,
    attempt_started_at     TEXT,
    attempt_epoch          INTEGER,
    attempt_holder         TEXT COLLATE BINARY,
    created_at             TEXT    NOT NULL,
    updated_at             TEXT    NOT NULL,
    completed_at           TEXT,
    last_modified_at       TEXT    NOT NULL,
    next_attempt_at        TEXT,
    modified_seq           INTEGER NOT NULL
);

CREATE INDEX submission_intents_due ON submission_intents (next_attempt_at, intent_id) WHERE next_attempt_at IS NOT NULL;

CREATE INDEX submission_intents_modified ON submission_intents (last_modified_at, intent_id);

CREATE UNIQUE INDEX submission_intents_modified_seq ON submission_intents (modified_seq);

CREATE INDEX submission_intents_webhook_owed ON submission_intents (completed_at)
    WHERE webhook_status = 'pending' AND completed_at IS NOT NULL;

-- Its number would be given again, to a row that the schedule then takes for one it has seen.
CREATE TRIGGER submission_intents_newest_stays BEFORE DELETE ON submission_intents
WHEN OLD.modified_seq = (SELECT max(modified_seq) FROM submission_intents)
BEGIN
    SELECT RAISE(ABORT, 'the intent written last must not be deleted: the schedule counts on from it');
END;

CREATE TABLE submission_attempts (
    intent_id      TEXT    NOT NULL COLLATE BINARY REFERENCES submission_intents,
    attempt_number INTEGER NOT NULL,
    started_at     TEXT    NOT NULL,
    finished_at    TEXT    NOT NULL,
    outcome_status TEXT,
    outcome_reason TEXT,
    error          TEXT,
    PRIMARY KEY (intent_id, attempt_number)
) WITHOUT ROWID;
