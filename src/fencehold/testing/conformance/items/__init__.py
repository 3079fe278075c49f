"""The conformance suite for items."""
