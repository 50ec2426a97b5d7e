"""This package builds, trains, resumes and stops a run."""
