"""This package sets up the process: device, threads, other workers, signals, packages that only some commands need."""
