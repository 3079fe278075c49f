"""The simulation of leases: three processes compete for one lease with our own Leader, Keeper and Term."""
