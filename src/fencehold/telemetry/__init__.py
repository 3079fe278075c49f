"""Who hears the facts: logs now; metrics and traces beside them."""
