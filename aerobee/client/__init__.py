"""The SDK: words that both fronts share, `steps` that decide, and the fronts that carry them out.

`aio` is for asyncio and trio, `blocking` for threads. What users import is in `aerobee`,
`aerobee.blocking`, `aerobee.errors` and `aerobee.allocation`.
"""
