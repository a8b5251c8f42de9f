"""Aerobee compared with the Java broker of RocketMQ: every row of the comparison by one command."""
