"""What starts runs besides the API: webhooks, schedules, events, messages."""
