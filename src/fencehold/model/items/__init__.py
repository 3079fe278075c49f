"""Items: the table of what may happen to one, and the checks of what is written and set."""
