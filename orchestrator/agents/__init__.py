"""Agents: who holds the conversation with a model."""
