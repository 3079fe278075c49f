"""The leader's schedule in memory: which intent is due when."""
