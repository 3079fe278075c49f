"""The loops: keeper, watch, election. They know ports, never a backend."""
