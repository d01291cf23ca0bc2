"""What requests ask for: distributions of token counts, and models that draw lengths and labels."""
