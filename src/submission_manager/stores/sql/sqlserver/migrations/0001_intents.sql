-- Intents, each with the contract as it stood when it was submitted, and their attempts, which are only ever added.
-- modified_version is given by the server to every write, in the order in which rows are written, not committed: rows
-- that commit late, after the schedule has passed their stamp, are found by it. A character outside the basic plane
-- takes two units of an nvarchar, hence the lengths.
CREATE TABLE submission_intents (
    intent_id              nvarchar(400)  COLLATE Latin1_General_BIN2 NOT NULL,
    submission_target      nvarchar(max)  COLLATE Latin1_General_BIN2 NOT NULL,
    payload                varbinary(max),
    payload_hash           binary(32)     NOT NULL,
    gateway_type           nvarchar(16)   COLLATE Latin1_General_BIN2 NOT NULL,
    gateway_url            nvarchar(max)  COLLATE Latin1_General_BIN2 NOT NULL,
    policy                 nvarchar(16)   COLLATE Latin1_General_BIN2 NOT NULL,
    max_acceptance_seconds int,
    max_attempts           int,
    terminal_outcomes      nvarchar(max)  NOT NULL,
    webhook_url            nvarchar(max),
    webhook_headers        nvarchar(max),
    webhook_headers_env    nvarchar(max),
    webhook_secret_env     nvarchar(max),
    webhook_status         nvarchar(16)   COLLATE Latin1_General_BIN2,
    webhook_attempted_at   datetime2(7),
    webhook_delivered_at   datetime2(7),
    webhook_error          nvarchar(2000),
    status                 nvarchar(16)   COLLATE Latin1_General_BIN2 NOT NULL,
    final_outcome_status   nvarchar(16)   COLLATE Latin1_General_BIN2,
    final_outcome_reason   nvarchar(400),
    exhausted_reason       nvarchar(32)   COLLATE Latin1_General_BIN2,
    attempt_count          int            NOT NULL,
    attempt_started_at     datetime2(7),
    attempt_epoch          bigint,
    attempt_holder         nvarchar(256)  COLLATE Latin1_General_BIN2,
    created_at             datetime2(7)   NOT NULL,
    updated_at             datetime2(7)   NOT NULL,
    completed_at           datetime2(7),
    last_modified_at       datetime2(7)   NOT NULL,
    next_attempt_at        datetime2(7),
    modified_version       rowversion     NOT NULL,
    CONSTRAINT submission_intents_pkey PRIMARY KEY CLUSTERED (intent_id),
    CONSTRAINT submission_intents_status CHECK (status IN (N'pending', N'accepted', N'rejected', N'exhausted')),
    CONSTRAINT submission_intents_webhook CHECK (webhook_status IN (N'pending', N'delivered', N'failed'))
);
GO
CREATE INDEX submission_intents_due ON submission_intents (next_attempt_at, intent_id) WHERE next_attempt_at IS NOT NULL;
GO
CREATE INDEX submission_intents_modified ON submission_intents (last_modified_at, intent_id);
GO
CREATE INDEX submission_intents_modified_version ON submission_intents (modified_version);
GO
CREATE INDEX submission_intents_webhook_owed ON submission_intents (completed_at)
    WHERE webhook_status = N'pending' AND completed_at IS NOT NULL;
GO
CREATE TABLE submission_attempts (
    intent_id      nvarchar(400)  COLLATE Latin1_General_BIN2 NOT NULL,
    attempt_number int            NOT NULL,
    started_at     datetime2(7)   NOT NULL,
    finished_at    datetime2(7)   NOT NULL,
    outcome_status nvarchar(16)   COLLATE Latin1_General_BIN2,
    outcome_reason nvarchar(400),
    error          nvarchar(2000),
    CONSTRAINT submission_attempts_pkey PRIMARY KEY CLUSTERED (intent_id, attempt_number)
);
GO
-- In place of a foreign key: an attempt is only ever inserted from the row of its intent, so what is left to be kept out
-- is a deletion in the wrong order. Attempts that outlive their intent would be in the way of the next one of its id.
CREATE TRIGGER submission_intents_attempts_first ON submission_intents AFTER DELETE AS
BEGIN
    SET NOCOUNT ON;
    IF EXISTS (SELECT 1 FROM submission_attempts AS a JOIN deleted AS d ON d.intent_id = a.intent_id)
    BEGIN
        ROLLBACK TRANSACTION;
        RAISERROR (N'An intent must not be deleted before its attempts.', 16, 1);
    END
END
