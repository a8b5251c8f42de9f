"""When log and queues reach the disk, and the files that say how far."""
