-- A witness for demonstrations and tests: every grant of the executor's lease, every start and every record of an attempt,
-- each with the lease as it stands in the database. There is one writer at a time: the order is that of the commits.
CREATE TABLE submission_audit (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind           TEXT    NOT NULL,
    intent_id      TEXT,
    attempt_number INTEGER,
    epoch          INTEGER NOT NULL,
    holder_id      TEXT    NOT NULL,
    lease_epoch    INTEGER,
    lease_holder   TEXT,
    error          TEXT
);

CREATE TRIGGER submission_audit_first_grant AFTER INSERT ON submission_manager_leases
WHEN NEW.lease_name = 'submission-manager-executor'
BEGIN
    INSERT INTO submission_audit (kind, epoch, holder_id) VALUES ('granted', NEW.lease_epoch, NEW.holder_id);
END;

CREATE TRIGGER submission_audit_next_grant AFTER UPDATE ON submission_manager_leases
WHEN NEW.lease_name = 'submission-manager-executor' AND OLD.lease_epoch <> NEW.lease_epoch
BEGIN
    INSERT INTO submission_audit (kind, epoch, holder_id) VALUES ('granted', NEW.lease_epoch, NEW.holder_id);
END;

CREATE TRIGGER submission_audit_starts AFTER UPDATE ON submission_intents
WHEN NEW.attempt_epoch IS NOT NULL AND OLD.attempt_epoch IS NOT NEW.attempt_epoch
BEGIN
    INSERT INTO submission_audit (kind, intent_id, attempt_number, epoch, holder_id, lease_epoch, lease_holder)
    VALUES ('started', NEW.intent_id, NEW.attempt_count + 1, NEW.attempt_epoch, NEW.attempt_holder,
            (SELECT lease_epoch FROM submission_manager_leases WHERE lease_name = 'submission-manager-executor'),
            (SELECT holder_id FROM submission_manager_leases WHERE lease_name = 'submission-manager-executor'));
END;

CREATE TRIGGER submission_audit_records AFTER UPDATE ON submission_intents
WHEN NEW.attempt_epoch IS NULL AND OLD.attempt_epoch IS NOT NULL
BEGIN
    INSERT INTO submission_audit
           (kind, intent_id, attempt_number, epoch, holder_id, lease_epoch, lease_holder, error)
    VALUES ('recorded', NEW.intent_id, NEW.attempt_count, OLD.attempt_epoch, OLD.attempt_holder,
            (SELECT lease_epoch FROM submission_manager_leases WHERE lease_name = 'submission-manager-executor'),
            (SELECT holder_id FROM submission_manager_leases WHERE lease_name = 'submission-manager-executor'),
            (SELECT error FROM submission_attempts AS a
              WHERE a.intent_id = NEW.intent_id AND a.attempt_number = NEW.attempt_count));
END;
