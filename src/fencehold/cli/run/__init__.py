"""`fencehold run`: runs a command only while its lease is held."""
