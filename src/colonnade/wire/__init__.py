"""What travels: the message codec, message kinds and the byte counter."""
