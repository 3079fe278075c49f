-- Intents, each with the contract as it stood when it was submitted, and their attempts, which are only ever added.
-- modified_xid is who wrote the row last: rows that commit late, after the schedule has passed their stamp, are found by it.
CREATE TABLE submission_intents (
    intent_id              varchar(200) COLLATE "C" NOT NULL,
    submission_target      text         COLLATE "C" NOT NULL,
    payload                bytea,
    payload_hash           bytea        NOT NULL,
    gateway_type           text         NOT NULL,
    gateway_url            text         NOT NULL,
    policy                 text         NOT NULL,
    max_acceptance_seconds integer,
    max_attempts           integer,
    terminal_outcomes      json         NOT NULL,
    webhook_url            text,
    webhook_headers        json,
    webhook_headers_env    json,
    webhook_secret_env     text,
    webhook_status         text CHECK (webhook_status IN ('pending', 'delivered', 'failed')),
    webhook_attempted_at   timestamptz,
    webhook_delivered_at   timestamptz,
    webhook_error          varchar(1000),
    status                 text         NOT NULL CHECK (status IN ('pending', 'accepted', 'rejected', 'exhausted')),
    final_outcome_status   text,
    final_outcome_reason   varchar(200),
    exhausted_reason       text,
    attempt_count          integer      NOT NULL,
    attempt_started_at     timestamptz,
    attempt_epoch          bigint,
    attempt_holder         varchar(128) COLLATE "C",
    created_at             timestamptz  NOT NULL,
    updated_at             timestamptz  NOT NULL,
    completed_at           timestamptz,
    last_modified_at       timestamptz  NOT NULL,
    next_attempt_at        timestamptz,
    modified_xid           xid8         NOT NULL DEFAULT pg_current_xact_id(),
    CONSTRAINT submission_intents_pkey PRIMARY KEY (intent_id)
);

CREATE INDEX submission_intents_due ON submission_intents (next_attempt_at, intent_id) WHERE next_attempt_at IS NOT NULL;

CREATE INDEX submission_intents_modified ON submission_intents (last_modified_at, intent_id);

CREATE INDEX submission_intents_modified_xid ON submission_intents (modified_xid);

CREATE INDEX submission_intents_webhook_owed ON submission_intents (completed_at)
    WHERE webhook_status = 'pending' AND completed_at IS NOT NULL;

CREATE TABLE submission_attempts (
    intent_id      varchar(200) COLLATE "C" NOT NULL REFERENCES submission_intents,
    attempt_number integer      NOT NULL,
    started_at     timestamptz  NOT NULL,
    finished_at    timestamptz  NOT NULL,
    outcome_status text,
    outcome_reason varchar(200),
    error          varchar(1000),
    PRIMARY KEY (intent_id, attempt_number)
);
