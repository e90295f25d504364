"""The page of ``decodebench history``: each metric over runs."""
