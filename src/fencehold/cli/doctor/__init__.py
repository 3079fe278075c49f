"""`fencehold doctor`: reports what is wrong, and what to do about it."""
