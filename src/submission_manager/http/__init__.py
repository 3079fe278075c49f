"""The service's HTTP face: routes, JSON, limits."""
