"""Several brokers of one configuration: their processes, and what is asked of all of them."""
