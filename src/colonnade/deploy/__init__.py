"""The processes of separate organisations: agreement, party, coordinator, prediction."""
