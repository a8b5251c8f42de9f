"""Several brokers under one supervisor."""
