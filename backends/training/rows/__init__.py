"""Rows and tokens to train on."""
