"""Writing to topics: `format("aerobee")` as a sink of batches and streams."""
