"""The service's own tables on each database. The lease table in the same database is fencehold's."""
