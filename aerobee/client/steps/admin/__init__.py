"""What an administrator asks and orders: topics, groups, offsets, messages, clients, brokers."""
