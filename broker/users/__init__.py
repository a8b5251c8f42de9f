"""Users and their policies (RocketMQ 5.3): who there is, and who may do what from where."""
