"""The store in memory, in this process. It runs the rule tables themselves; other backends are compared with it."""
