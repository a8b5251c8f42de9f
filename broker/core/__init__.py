"""The base of every feature: settings, clock, store, counters, rounds, puts, pace, names."""
