"""A person withdraws: how organisations tell each other, what they refuse from then on, which models are marked."""
