"""Events of an outbox: the table of what may happen to one, and the checks of what is added and set."""
