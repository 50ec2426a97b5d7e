"""This package sets up the process: device, CPU threads, signals and the connection to other
workers.
"""
