"""This package tests the installation and the machine."""
