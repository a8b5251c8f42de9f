"""The blocking front: what users import as `aerobee.blocking`. It has no event loop."""
