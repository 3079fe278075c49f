"""`fencehold worker` and `fencehold reaper`: long-running commands with health and metrics."""
