"""Figures of simulated numbers: what an experiment file of `decodebench simulate` asks for."""
