"""Tasks and decks: what is asked, as data plus a reference."""
