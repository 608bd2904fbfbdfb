"""Feature centers of characters: added up, exported, compared."""
