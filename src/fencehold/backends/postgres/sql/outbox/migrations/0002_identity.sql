-- What tells this outbox from one of the same name in another database, which a caller's connection may lead to. Everybody
-- may read it: it is no secret, and producers need no right that they did not have before.
CREATE TABLE IF NOT EXISTS fencehold_outbox_identity (
    one       boolean     NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    outbox_id varchar(36) COLLATE "C" NOT NULL
);

INSERT INTO fencehold_outbox_identity (outbox_id) VALUES (gen_random_uuid()::text) ON CONFLICT DO NOTHING;

GRANT SELECT ON fencehold_outbox_identity TO PUBLIC;
