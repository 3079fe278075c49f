"""Runs the rule table itself, in this process: the reference that the other backends are compared with."""
