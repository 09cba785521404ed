#!/bin/sh
# Locks and fencing tokens outlive the package; only `purge` of dpkg deletes them.
set -e
if [ "$1" = purge ]; then
    rm -rf /var/lib/private/leasehold /var/lib/leasehold
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
