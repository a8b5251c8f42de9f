"""Room on the disk: what is deleted when, and when sends are refused."""
