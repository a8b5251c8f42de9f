"""The settings of the SDK: what clients, producers and consumers take, checked once."""
