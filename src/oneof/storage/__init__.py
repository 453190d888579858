"""Files, settings, rows and progress: what every room above needs from the disk and the terminal."""
