"""Other people's queues, each run in its own environment. These scripts import nothing of fencehold."""
