"""The outbox on PostgreSQL: its connection, its statements in sql/outbox/, and its parameters and rows."""
