#!/bin/sh
# Makes deploy/two-sites/secrets, which docker-compose.yml needs: for each site what its nodes know each other by, the
# password of its first user `fluffle`, and that of the user for the other site's links. What is there already stays.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
new() { head -c 24 /dev/urandom | base64 | tr '+/' '-_'; }
for site in a b; do
  [ -e "secrets/cluster_secret-$site" ] || new > "secrets/cluster_secret-$site"
  [ -e "secrets/password-$site.conf" ] || echo "default_pass = $(new)" > "secrets/password-$site.conf"
  [ -e "secrets/link_password-$site" ] || new > "secrets/link_password-$site"
done
# The directory keeps other users of this machine out. In a container the node's user has to read the files.
chmod 0700 secrets
chmod 0444 secrets/*
