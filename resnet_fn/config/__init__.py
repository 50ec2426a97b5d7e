"""Settings: what defines an update, what only decides how it is computed, and the flags made from both."""
