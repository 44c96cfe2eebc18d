"""Other libraries, one file per third party; nothing here is imported before it is asked for."""
