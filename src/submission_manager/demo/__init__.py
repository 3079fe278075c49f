"""The service's demo: instances are killed and frozen under load, then the records of all sides are compared."""
