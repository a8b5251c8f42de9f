"""Message queries: by key, by unique key, by id."""
