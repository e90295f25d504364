"""Any OpenAI-compatible server, measured from outside.

`probe` finds out what the server can do, `route` how it is reached, `connection` and `client` carry
the requests, on one thread and without a library between the socket and the stamp; `workers` are
clients in processes of their own, for more streams than one can follow.
"""
