"""Where the facts go: logs, metrics and traces."""
