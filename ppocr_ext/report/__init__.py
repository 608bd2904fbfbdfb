"""Pictures and tables of what runs did."""
