"""The SDK: values shared by both fronts, `steps` that decide, and the fronts that do the I/O.

`aio` is for asyncio and trio, `blocking` for threads. The names that users import are in `aerobee`,
`aerobee.blocking`, `aerobee.errors` and `aerobee.allocation`.
"""
