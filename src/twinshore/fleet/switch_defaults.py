"""What a switch goes by unless whoever asks for it says otherwise. Pure: the command line shows it in its help, and
loads nothing else for that."""

HOLD_S = 10.0  # so long writers may wait
WAVE_TOPICS = 50  # so many move at once where all topics of a link do
