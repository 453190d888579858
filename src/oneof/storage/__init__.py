"""Files, settings, rows and progress bars: what every other package needs from the disk and the terminal."""
