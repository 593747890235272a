#!/bin/sh
# Makes deploy/secrets, which docker-compose.yml needs: what the nodes know each other by, the password of the first
# user, `fluffle`, and that of Grafana's user `admin`. What is there already stays.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
new() { head -c 24 /dev/urandom | base64 | tr '+/' '-_'; }
[ -e secrets/cluster_secret ] || new > secrets/cluster_secret
[ -e secrets/password.conf ] || echo "default_pass = $(new)" > secrets/password.conf
[ -e secrets/grafana_password ] || new > secrets/grafana_password
# The directory keeps other users of this machine out. In a container the node's user has to read the files.
chmod 0700 secrets
chmod 0444 secrets/cluster_secret secrets/password.conf secrets/grafana_password
