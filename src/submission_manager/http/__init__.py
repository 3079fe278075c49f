"""The service's HTTP interface: routes, JSON, limits."""
