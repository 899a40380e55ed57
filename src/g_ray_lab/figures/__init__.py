"""Figures of result tables and analyses."""
