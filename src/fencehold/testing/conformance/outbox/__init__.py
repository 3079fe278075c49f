"""The conformance suite for events."""
