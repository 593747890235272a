#!/bin/sh
# The first process of a container: fluffle, with the cluster's secret where it wants it.
# A secret that is a file comes with the host's owner and mode, and a node takes none that others may read.
set -eu
if [ -r /run/secrets/cluster_secret ]; then
  install -m 0400 /run/secrets/cluster_secret /run/fluffle/cluster_secret
fi
exec fluffle "$@"
