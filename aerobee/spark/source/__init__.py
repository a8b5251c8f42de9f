"""Reading topics of a running cluster: `format("aerobee")` as a table and as a stream."""
