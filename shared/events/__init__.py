"""What operators hear of: announcements on the account's event bus."""
