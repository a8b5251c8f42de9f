"""Pages of the documentation that are made from the source; none of this is in the wheel."""
