"""The outbox on SQLite: its statements in sql/outbox/, their parameters and rows, and hints about added events."""
