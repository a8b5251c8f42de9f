"""A message in and out: appended, read by queue offset, compared with what was written."""
