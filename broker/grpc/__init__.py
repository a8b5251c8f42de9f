"""The RocketMQ 5.x clients over gRPC: their calls become the requests that the broker knows."""
