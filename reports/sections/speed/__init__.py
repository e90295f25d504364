"""How fast: throughput and latencies, over load and objective."""
