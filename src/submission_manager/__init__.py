"""SubmissionManager: every instance accepts intents; only one instance, the leader, executes their attempts."""
