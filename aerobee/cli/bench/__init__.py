"""Commands `aerobee bench`: rates, latencies, and checks for lost or reordered messages."""
