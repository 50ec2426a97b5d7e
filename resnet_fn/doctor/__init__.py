"""What this installation and this machine compute, tested."""
