"""Follower, leader, follower: the schedule read and kept while this instance leads."""
