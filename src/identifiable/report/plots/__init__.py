"""Plots with matplotlib."""
