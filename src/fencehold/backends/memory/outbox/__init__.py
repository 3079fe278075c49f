"""The outbox in memory. Its events are changed by the rule table itself, not by statements."""
