"""`aerobee bench`: how fast, how late, and whether anything is lost, doubled or out of order."""
