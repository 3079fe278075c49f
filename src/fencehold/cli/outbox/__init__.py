"""`fencehold outbox`: what an operator asks of an outbox."""
