#!/bin/sh
# After an installation nothing is started; after an upgrade a running server is replaced.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart leasehold.service
fi
