"""Events in memory."""
