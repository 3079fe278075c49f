"""The conformance suite for leases and fences."""
