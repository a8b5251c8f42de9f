"""Commands to store to answers: the RocketMQ broker and its embedded name server."""
