"""The service's demonstration: instances that are killed and frozen under load, and the books compared."""
