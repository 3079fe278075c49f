"""`fencehold outbox`: an operator's commands for an outbox."""
