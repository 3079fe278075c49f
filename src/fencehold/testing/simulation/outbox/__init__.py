"""The simulation of the outbox: three processes handle the events of one outbox with our own Worker and its reaper."""
