"""The rules of items, and the checks of their settings and of what is written to them."""
