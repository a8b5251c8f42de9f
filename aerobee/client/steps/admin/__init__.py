"""The steps of the admin client: topics, groups, offsets, messages, clients, brokers."""
