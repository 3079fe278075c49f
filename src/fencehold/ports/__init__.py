"""Protocols between the rules and the code that does I/O: what a backend must offer, and what the runtime relies on."""
