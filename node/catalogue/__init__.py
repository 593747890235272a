"""What exists in a cluster: vhosts, users, exchanges, queues, bindings, policies, members, and the commands that change them."""
