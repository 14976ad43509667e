"""Who is who: certificates for trials, loaded credentials, signatures, encryption."""
