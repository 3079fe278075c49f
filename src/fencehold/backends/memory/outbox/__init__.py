"""The outbox in memory: events that the rule table itself changes."""
