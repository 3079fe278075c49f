"""The rules of outbox events, and the checks of their settings and of what is added."""
