"""What listens on sockets beside the hub: the query service, and the endpoint that takes logs in."""
