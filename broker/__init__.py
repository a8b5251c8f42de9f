"""The RocketMQ broker and its embedded name server: requests to store operations to answers."""
