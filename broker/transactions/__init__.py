"""Transactional messages: halves, their ends, and the check of those that stay open."""
