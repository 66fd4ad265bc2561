#!/bin/busybox sh
# The first process of a virtual machine with one NATS server; `name` and `address` come from the kernel's command line.
set -e
busybox mkdir -p /dev /proc /sys /data /tmp
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
for module in $(busybox cat /modules/order); do
    busybox insmod "/modules/$module.ko"
done
busybox ip link set lo up
busybox ip address add 10.0.2.15/24 dev eth0
busybox ip link set eth0 up
busybox ip address add "$address/24" dev eth1
busybox ip link set eth1 up
busybox mount -t ext4 /dev/vda /data
# When it ends the kernel panics, and the machine with it.
export POD_NAME="$name"
mkdir -p /run/nats
exec nats-server --config /etc/nats/nats.conf
