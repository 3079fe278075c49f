"""The service's values and rules: no I/O, no clock."""
