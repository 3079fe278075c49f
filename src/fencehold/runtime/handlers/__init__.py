"""A user's handlers: kinds of handlers, checks, their errors as text, and a watch for handlers that hang."""
