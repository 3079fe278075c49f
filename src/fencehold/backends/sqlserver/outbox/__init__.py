"""The outbox on SQL Server: its statements of sql/outbox/, and their parameters and rows."""
