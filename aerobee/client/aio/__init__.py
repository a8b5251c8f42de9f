"""The async front, for asyncio and trio: what users import as `aerobee`."""
