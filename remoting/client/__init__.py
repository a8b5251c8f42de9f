"""The client side of a connection: calls in flight, and the channels that send them."""
