-- A witness for demonstrations and tests: every grant of the executor's lease, every start and every record of an attempt,
-- in order, each with the lease as it stands in the database. Writes are looked at when they commit, grants when they are
-- made: so a write that crosses a grant is out of order, or meets a lease that is no longer its own.
CREATE TABLE submission_audit (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind           text   NOT NULL,
    intent_id      text,
    attempt_number integer,
    epoch          bigint NOT NULL,
    holder_id      text   NOT NULL,
    lease_epoch    bigint,
    lease_holder   text,
    error          text
);

CREATE FUNCTION submission_audit_grant() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO submission_audit (kind, epoch, holder_id) VALUES ('granted', NEW.lease_epoch, NEW.holder_id);
    RETURN NULL;
END
$body$;

CREATE FUNCTION submission_audit_write() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    lease record;
BEGIN
    SELECT lease_epoch, holder_id INTO lease FROM submission_manager_leases
     WHERE lease_name = 'submission-manager-executor';
    IF NEW.attempt_epoch IS NOT NULL THEN
        INSERT INTO submission_audit (kind, intent_id, attempt_number, epoch, holder_id, lease_epoch, lease_holder)
        VALUES ('started', NEW.intent_id, NEW.attempt_count + 1, NEW.attempt_epoch, NEW.attempt_holder,
                lease.lease_epoch, lease.holder_id);
    ELSE
        INSERT INTO submission_audit
               (kind, intent_id, attempt_number, epoch, holder_id, lease_epoch, lease_holder, error)
        VALUES ('recorded', NEW.intent_id, NEW.attempt_count, OLD.attempt_epoch, OLD.attempt_holder,
                lease.lease_epoch, lease.holder_id,
                (SELECT error FROM submission_attempts AS a
                  WHERE a.intent_id = NEW.intent_id AND a.attempt_number = NEW.attempt_count));
    END IF;
    RETURN NULL;
END
$body$;

CREATE TRIGGER submission_audit_first_grant AFTER INSERT ON submission_manager_leases
    FOR EACH ROW WHEN (NEW.lease_name = 'submission-manager-executor') EXECUTE FUNCTION submission_audit_grant();

CREATE TRIGGER submission_audit_next_grant AFTER UPDATE ON submission_manager_leases
    FOR EACH ROW WHEN (NEW.lease_name = 'submission-manager-executor' AND OLD.lease_epoch <> NEW.lease_epoch)
    EXECUTE FUNCTION submission_audit_grant();

CREATE CONSTRAINT TRIGGER submission_audit_writes AFTER UPDATE ON submission_intents DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.attempt_epoch IS DISTINCT FROM NEW.attempt_epoch)
    EXECUTE FUNCTION submission_audit_write();
