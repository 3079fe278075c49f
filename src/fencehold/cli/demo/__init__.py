"""`fencehold demo`: three processes, a kill, a freeze, and a late write that the fence refuses."""
