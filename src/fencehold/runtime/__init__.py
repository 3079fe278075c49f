"""What programs call, and the loops behind it: keeper, watch, election, worker, reaper.

They use ports, never a backend.
"""
