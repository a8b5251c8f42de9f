"""The readers of the counters: a scrape, and statistics over time."""
