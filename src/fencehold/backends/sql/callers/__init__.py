"""Our statements in a transaction that a caller owns, written once for every database and kind of connection."""
