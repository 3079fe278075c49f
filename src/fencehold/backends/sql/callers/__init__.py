"""Our work in a transaction that a caller owns: each step written once, for every database and kind of connection."""
