"""Classification in one pass, with ramps at which inputs leave early.

`models` has the networks, `spans` runs a part of one, and the backends differ in who runs with
whom: whole batches through all layers, batches that shrink, batches that are filled up again.
"""
