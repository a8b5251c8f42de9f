"""The code that a broker, a name server and a supervisor share from their start to their stop."""
