-- A witness for demonstrations and tests: every grant of the executor's lease, every start and every record of an attempt,
-- each with the lease as it stands in the database. Triggers here run with their statement and not at the commit: what
-- keeps a write from committing after the next grant is tested with the fence itself.
CREATE TABLE submission_audit (
    id             bigint        NOT NULL IDENTITY(1, 1) CONSTRAINT submission_audit_pkey PRIMARY KEY,
    kind           nvarchar(16)  NOT NULL,
    intent_id      nvarchar(400) COLLATE Latin1_General_BIN2,
    attempt_number int,
    epoch          bigint        NOT NULL,
    holder_id      nvarchar(256) COLLATE Latin1_General_BIN2 NOT NULL,
    lease_epoch    bigint,
    lease_holder   nvarchar(256) COLLATE Latin1_General_BIN2,
    error          nvarchar(2000)
);
GO
CREATE TRIGGER submission_audit_grants ON submission_manager_leases AFTER INSERT, UPDATE AS
BEGIN
    SET NOCOUNT ON;
    INSERT INTO submission_audit (kind, epoch, holder_id)
    SELECT N'granted', i.lease_epoch, i.holder_id
      FROM inserted AS i LEFT JOIN deleted AS d ON d.lease_name = i.lease_name
     WHERE i.lease_name = N'submission-manager-executor' AND (d.lease_epoch IS NULL OR d.lease_epoch <> i.lease_epoch);
END
GO
CREATE TRIGGER submission_audit_writes ON submission_intents AFTER UPDATE AS
BEGIN
    SET NOCOUNT ON;
    INSERT INTO submission_audit (kind, intent_id, attempt_number, epoch, holder_id, lease_epoch, lease_holder)
    SELECT N'started', i.intent_id, i.attempt_count + 1, i.attempt_epoch, i.attempt_holder, l.lease_epoch, l.holder_id
      FROM inserted AS i
      JOIN deleted AS d ON d.intent_id = i.intent_id
      LEFT JOIN submission_manager_leases AS l ON l.lease_name = N'submission-manager-executor'
     WHERE i.attempt_epoch IS NOT NULL AND (d.attempt_epoch IS NULL OR d.attempt_epoch <> i.attempt_epoch);
    INSERT INTO submission_audit (kind, intent_id, attempt_number, epoch, holder_id, lease_epoch, lease_holder, error)
    SELECT N'recorded', i.intent_id, i.attempt_count, d.attempt_epoch, d.attempt_holder, l.lease_epoch, l.holder_id, a.error
      FROM inserted AS i
      JOIN deleted AS d ON d.intent_id = i.intent_id
      LEFT JOIN submission_manager_leases AS l ON l.lease_name = N'submission-manager-executor'
      LEFT JOIN submission_attempts AS a ON a.intent_id = i.intent_id AND a.attempt_number = i.attempt_count
     WHERE i.attempt_epoch IS NULL AND d.attempt_epoch IS NOT NULL;
END
