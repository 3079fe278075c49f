"""`fencehold run`: a command that runs only while its lease is held."""
