"""Tests of this installation and this machine."""
