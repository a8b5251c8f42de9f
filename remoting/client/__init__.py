"""Hands of the client side: waiting calls and the channels that carry them."""
