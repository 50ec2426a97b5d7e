"""The process: device and threads, the other workers, signals, packages that only some commands need."""
