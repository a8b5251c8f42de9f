"""What happens by itself in the broker."""
