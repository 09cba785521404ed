#!/bin/sh
# dpkg says `remove`, rpm 0; an upgrade is neither.
set -e
case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl disable --now leasehold.service
    fi
    ;;
esac
