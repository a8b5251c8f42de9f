"""Counters, and what a scrape, a probe and the statistics requests read of them."""
