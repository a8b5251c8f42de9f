"""The messages of the 5.x clients ↔ the requests, records and answers of the broker. Pure."""
