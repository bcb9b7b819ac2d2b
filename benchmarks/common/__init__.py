"""What the benchmarks share: a fast server in a process of its own, the prompt they run, and the peers."""
