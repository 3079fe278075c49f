"""`submission-manager demo`."""
