"""One folder per database. Each runs our verbs as the database's statements and turns driver faults into our errors."""
