"""SubmissionManager: intents accepted by every instance, attempts executed by exactly one, the leader."""
