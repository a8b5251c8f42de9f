"""The front for threads: what users import as `aerobee.blocking`. No event loop behind it."""
