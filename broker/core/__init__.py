"""What every feature stands on: puts, pools, pace, names, places for requests that wait."""
