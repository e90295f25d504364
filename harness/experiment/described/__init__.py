"""What an experiment file may hold, told to people and to editors: a JSON schema, and the page
docs/experiment.md that is made of it."""
