"""The HTML report of a results folder: tables, figures and every answer, in one self-contained
page."""
