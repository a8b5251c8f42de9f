"""Messages: appended, read by queue offset, verified."""
