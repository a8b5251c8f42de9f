"""Transactional messages: halves, commit and rollback, and the check of open ones."""
