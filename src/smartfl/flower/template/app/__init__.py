"""SmartFL on handwritten digits."""
