"""The pipeline as Ray actors on emulated devices: real queues, calls and failures; a batch waits
for its profiled time instead of being computed."""
