-- name: replicated
-- only: postgres, because only there a transaction can ask that its commit be on a standby before it is answered.
-- Raises synchronous_commit to what the store was opened with, for this session or for this transaction alone, and never
-- lowers it. Answers for which standbys the server waits: any role may read that.
SELECT current_setting('synchronous_standby_names'),
       CASE WHEN CAST(:sync_commit AS text) = 'remote_apply'
              OR current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
            THEN set_config('synchronous_commit', CAST(:sync_commit AS text), CAST(:is_local AS boolean)) END;
