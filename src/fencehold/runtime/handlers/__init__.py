"""A user's handlers: their kinds, their mistakes, their errors as text, and those that do not end."""
