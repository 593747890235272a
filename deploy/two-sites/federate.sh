#!/bin/sh
# Makes the two sites of docker-compose.yml each other's upstream: sh deploy/two-sites/federate.sh 'site\.'
#
# Queues and exchanges whose names begin with this regular expression are federated, and all queues are mirrored within
# their site. It may be run again. COMPOSE: the program, if it is not `docker compose`.
set -eu
begin=${1:?"which names are federated, for instance 'site\.'"}
here=$(cd "$(dirname "$0")" && pwd)
copies='"ha-mode": "all", "ha-sync-mode": "automatic"'
# Backslashes of the regular expression stay as they are: it is an argument, not in JSON.
allowed="^($begin|federation: )"

at() {
  site=$1
  shift
  ${COMPOSE:-docker compose} -f "$here/docker-compose.yml" exec -T "${site}1" fluffle "$@"
}
other() { case $1 in a) echo b ;; b) echo a ;; esac; }

# What waits for the other site has copies from its beginning: policies and users of both sites come before links.
for site in a b; do
  user="link-from-$(other $site)"
  password=$(cat "$here/secrets/link_password-$site")
  at $site plugins enable rabbitmq_federation rabbitmq_federation_management
  at $site ctl set_policy --priority=-1 --apply-to queues two-sites-copies '.*' "{$copies}"
  at $site ctl -q list_users --no-table-headers | grep -q "^$user[[:space:]]" || at $site ctl add_user "$user" "$password"
  at $site ctl set_permissions "$user" "$allowed" "$allowed" "$allowed"
done
for site in a b; do
  there=$(other $site)
  password=$(cat "$here/secrets/link_password-$there")
  uri="amqp://link-from-$site:$password@site-$there.link?heartbeat=5"
  at $site ctl set_parameter federation-upstream other-site "{\"uri\": \"$uri\", \"reconnect-delay\": 1}"
  at $site ctl set_policy --apply-to queues two-sites "^$begin" "{\"federation-upstream\": \"other-site\", $copies}"
  at $site ctl set_policy --apply-to exchanges two-sites-exchanges "^$begin" '{"federation-upstream": "other-site"}'
done
