"""The registry file of targets, read and checked as a whole."""
