"""`store.outbox(...)`: adding events, and the worker that claims, handles, renews and recovers them."""
