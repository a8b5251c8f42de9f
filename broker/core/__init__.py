"""What every feature stands on: settings, clock, store, counters, rounds, puts, pace, names."""
