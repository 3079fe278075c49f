-- name: glance
-- Who leads, and how far things have come; the last two are of the newest epoch alone.
SELECT (SELECT holder_id FROM submission_manager_leases WHERE lease_name = 'submission-manager-executor') AS holder_id,
       (SELECT lease_epoch FROM submission_manager_leases WHERE lease_name = 'submission-manager-executor') AS epoch,
       (SELECT count(*) FROM submission_intents) AS intents,
       (SELECT count(*) FROM submission_intents WHERE status = 'pending') AS pending,
       (SELECT count(*) FROM submission_intents WHERE attempt_epoch IS NOT NULL) AS marked,
       (SELECT count(*) FROM submission_audit WHERE kind = 'started'
           AND epoch = (SELECT max(lease_epoch) FROM submission_manager_leases)) AS started,
       (SELECT count(*) FROM submission_audit WHERE kind = 'recorded'
           AND lease_epoch = (SELECT max(lease_epoch) FROM submission_manager_leases)) AS recorded;
