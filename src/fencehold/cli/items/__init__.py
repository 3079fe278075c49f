"""`fencehold items`: list, show and break."""
