"""Templates to messages: `Renderer` compiles, checks and renders prompts. jinja2 is imported in here alone."""

from promptkit._render._renderer import CompiledPrompt, Renderer

__all__ = ["CompiledPrompt", "Renderer"]
