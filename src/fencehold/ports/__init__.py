"""Protocols between the rules and the machinery: what a backend must offer and what the loops rely on."""
