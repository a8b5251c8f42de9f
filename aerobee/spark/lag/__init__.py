"""The lag of consumer groups as a data source: `format("aerobee.lag")`."""
