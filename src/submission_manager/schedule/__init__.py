"""What is due when, in the leader's memory."""
