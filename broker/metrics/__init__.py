"""Counters; the scrape, the probes and the statistics requests that read them."""
