"""Weight files of other projects: read, recognised, renamed, converted."""
