"""The service's own tables on each database. The lease table beside them is fencehold's."""
