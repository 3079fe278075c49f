"""Leaders by a lease row: the candidate, the term, the keeper that renews, and the watch of followers."""
