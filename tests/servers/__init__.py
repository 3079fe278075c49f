"""How the tests start real servers: found on the machine or brought by a package, never assumed to be running."""
