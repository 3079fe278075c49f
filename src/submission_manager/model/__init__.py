"""Pure values and rules of the service: no I/O, no clock."""
