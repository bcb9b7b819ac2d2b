"""promptkit: prompts kept as files, run from blocking code."""
