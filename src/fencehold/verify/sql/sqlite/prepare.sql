-- name: prepare
-- What the contenders write to, and what triggers note of every change in its own transaction.
CREATE TABLE verify_counters (name TEXT PRIMARY KEY, n INTEGER NOT NULL);

CREATE TABLE verify_writes (
    lease_name TEXT NOT NULL, commit_order INTEGER NOT NULL, holder_id TEXT NOT NULL, epoch INTEGER NOT NULL,
    epoch_seen INTEGER, write_id TEXT NOT NULL);

CREATE TABLE verify_lease_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, was_holder TEXT, was_epoch INTEGER,
    was_live INTEGER NOT NULL, holder TEXT, epoch INTEGER);

CREATE TABLE verify_event_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, tracking_id TEXT NOT NULL, was_status TEXT NOT NULL, was_token TEXT,
    was_live INTEGER NOT NULL, status TEXT, token TEXT, is_counted INTEGER NOT NULL DEFAULT 0);

CREATE TABLE verify_item_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, item_id TEXT NOT NULL, was_holder TEXT, was_token INTEGER NOT NULL,
    was_live INTEGER NOT NULL, holder TEXT, token INTEGER NOT NULL, is_save INTEGER NOT NULL, document TEXT NOT NULL);

CREATE TRIGGER verify_lease_made AFTER INSERT ON fencehold_leases
BEGIN
    INSERT INTO verify_lease_changes (name, was_live, holder, epoch)
    VALUES (NEW.lease_name, 0, NEW.holder_id, NEW.lease_epoch);
END;

CREATE TRIGGER verify_lease_changed AFTER UPDATE ON fencehold_leases
WHEN NEW.lease_epoch <> OLD.lease_epoch OR NEW.holder_id <> OLD.holder_id OR NEW.acquired_at <> OLD.acquired_at
     OR (NEW.expires_at > OLD.expires_at AND NEW.renewed_at >= OLD.expires_at)
BEGIN
    INSERT INTO verify_lease_changes (name, was_holder, was_epoch, was_live, holder, epoch)
    VALUES (OLD.lease_name, OLD.holder_id, OLD.lease_epoch, OLD.expires_at > NEW.renewed_at, NEW.holder_id,
            NEW.lease_epoch);
END;

CREATE TRIGGER verify_lease_deleted AFTER DELETE ON fencehold_leases
BEGIN
    INSERT INTO verify_lease_changes (name, was_holder, was_epoch, was_live)
    VALUES (OLD.lease_name, OLD.holder_id, OLD.lease_epoch, OLD.expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
END;

CREATE TRIGGER verify_event_changed AFTER UPDATE ON outbox
WHEN OLD.status <> NEW.status OR OLD.lock_token IS NOT NEW.lock_token OR OLD.status = 'COMPLETED'
BEGIN
    INSERT INTO verify_event_changes (tracking_id, was_status, was_token, was_live, status, token, is_counted)
    VALUES (OLD.tracking_id, OLD.status, OLD.lock_token,
            coalesce(OLD.locked_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0), NEW.status, NEW.lock_token,
            NEW.retry_count > OLD.retry_count);
END;

CREATE TRIGGER verify_event_deleted AFTER DELETE ON outbox
BEGIN
    INSERT INTO verify_event_changes (tracking_id, was_status, was_token, was_live)
    VALUES (OLD.tracking_id, OLD.status, OLD.lock_token,
            coalesce(OLD.locked_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0));
END;

CREATE TRIGGER verify_item_changed AFTER UPDATE ON fencehold_items
WHEN NEW.token <> OLD.token OR NEW.holder_id IS NOT OLD.holder_id OR NEW.document <> OLD.document
BEGIN
    INSERT INTO verify_item_changes (item_id, was_holder, was_token, was_live, holder, token, is_save, document)
    VALUES (OLD.id, OLD.holder_id, OLD.token,
            coalesce(OLD.expires_at > coalesce(NEW.leased_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), 0), NEW.holder_id,
            NEW.token, NEW.document <> OLD.document, NEW.document);
END;
