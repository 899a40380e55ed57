"""Rigid motions and polynomials: the mathematics below every camera."""
