"""Three processes handle the events of one outbox with our own Worker and its reaper."""
