"""How far consumer groups are behind: `format("aerobee.lag")`."""
