"""gRPC: the messages of the RocketMQ 5.x clients, and the calls that carry them."""
