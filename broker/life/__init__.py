"""What a broker, a name server and a supervisor have in common from their start to their stop."""
