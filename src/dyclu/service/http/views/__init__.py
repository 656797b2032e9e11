"""What the service tells of itself: answers to GET, metrics, and its description of the API."""
