"""What administrators and dashboards ask for."""
