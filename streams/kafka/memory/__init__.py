"""The ports in memory, as strict as a broker, and with faults injected."""
