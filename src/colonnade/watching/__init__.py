"""What runs leave in their folders, for those who watch them: read without torch, and without asking any process."""
