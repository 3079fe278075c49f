"""One folder per database. Each runs our verbs as its database's statements, and turns driver faults into our errors."""
