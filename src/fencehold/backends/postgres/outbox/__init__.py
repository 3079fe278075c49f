"""The outbox on PostgreSQL: its connection, its statements of sql/outbox/, and their parameters and rows."""
