"""This room sets up the process: device and threads, other workers, signals, packages that only some commands need."""
