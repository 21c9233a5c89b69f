"""Commands that put several packages together."""
