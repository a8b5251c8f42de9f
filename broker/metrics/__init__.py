"""What reads the counters: a scrape, and statistics over time."""
