"""The rule table run as it stands, in this process: the reference the other backends are compared with."""
