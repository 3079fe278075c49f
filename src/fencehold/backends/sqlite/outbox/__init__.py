"""The outbox on SQLite: its statements of sql/outbox/, their parameters and rows, and hints about added events."""
