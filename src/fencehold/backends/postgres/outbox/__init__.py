"""The outbox on PostgreSQL: its connection, its statements in sql/outbox/, and how parameters and rows are converted."""
