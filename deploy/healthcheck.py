"""Whether clients should come to the node of this container: exit code 0 or 1. Run by Docker every few seconds.

It asks what a balancer asks (docs/management.md, Balancers). It imports next to nothing, since it has to be cheap:
`python3 -I -S healthcheck.py [PORT]`, PORT being that of the HTTP API.
"""

import socket
import sys

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 15672
LIMIT_S = 2.0

try:
    with socket.create_connection(("127.0.0.1", PORT), LIMIT_S) as asked:
        asked.sendall(b"GET /health/ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
        answer = asked.recv(4096)
except OSError as error:
    sys.exit(str(error))
print(answer.decode(errors="replace").partition("\r\n\r\n")[2])
sys.exit(b" 200 " not in answer.partition(b"\r\n")[0])
