"""Plain counters: every feature adds to them, a scrape reads them."""
