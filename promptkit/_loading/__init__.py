"""Reading the files that authors write: YAML with positions, prompts, profiles, schemas and artifacts."""
