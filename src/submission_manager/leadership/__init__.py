"""Leadership: the schedule is read and kept fresh while this instance leads."""
