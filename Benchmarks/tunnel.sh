#!/usr/bin/env bash
# The tunnel beside wireguard-go: a wireguard-go client in one network namespace, and in another one both a second
# wireguard-go and our daemon. As root.
#   Benchmarks/tunnel.sh AGENT [SECONDS]
set -eu
agent=$(realpath "${1:?the daemon\'s program}")
seconds=${2:-5}
if [ "$(id -u)" != 0 ] || [ ! -w /dev/net/tun ]; then
    echo "tunnel.sh: left out, needs root and /dev/net/tun"
    exit
fi
directory=$(mktemp -d)
client="wa-bench-a-$$"; server="wa-bench-b-$$"
A="ip netns exec $client"; B="ip netns exec $server"
# Their sockets lie in one directory.
wa="a$$"; wb="b$$"
stop() {
    for namespace in "$client" "$server"; do
        ip netns pids "$namespace" 2>/dev/null | xargs -r kill 2>/dev/null || true
        ip netns del "$namespace" 2>/dev/null || true
    done
    rm -rf "$directory"
}
trap stop EXIT
cd "$directory"
umask 077
for name in a b c; do wg genkey >$name.key; wg pubkey <$name.key >$name.pub; done
for namespace in "$client" "$server"; do ip netns add "$namespace"; ip -n "$namespace" link set lo up; done
ip link add outer netns "$client" type veth peer name outer netns "$server"
ip -n "$client" addr add 198.19.0.1/24 dev outer; ip -n "$client" link set outer up
ip -n "$server" addr add 198.19.0.2/24 dev outer; ip -n "$server" link set outer up
$A wireguard-go -f "$wa" >/dev/null 2>&1 &
$B wireguard-go -f "$wb" >/dev/null 2>&1 &
other=$!
until $A wg show "$wa" >/dev/null 2>&1 && $B wg show "$wb" >/dev/null 2>&1; do sleep 0.1; done
$A wg set "$wa" private-key a.key listen-port 51001
$B wg set "$wb" private-key b.key listen-port 51002 peer "$(cat a.pub)" allowed-ips fd98::1/128
# A peer of the client without any session.
connect() {
    $A wg set "$wa" peer "$(cat $1.pub)" remove
    $A wg set "$wa" peer "$(cat $1.pub)" allowed-ips "$2/128" endpoint "198.19.0.2:$3"
}
both() { connect b fd98::2 51002; connect c fd98::3 51003; }
$A ip addr add fd98::1/128 dev "$wa"; $A ip link set "$wa" mtu 1280 up
$A ip route add fd98::2/128 dev "$wa"; $A ip route add fd98::3/128 dev "$wa"
$B ip addr add fd98::2/128 dev "$wb"; $B ip link set "$wb" mtu 1280 up; $B ip route add fd98::1/128 dev "$wb"
printf '[Interface]\nPrivateKey = %s\nListenPort = 51003\nAddress = fd98::3/128\n[Peer]\nPublicKey = %s\nAllowedIPs = fd98::1/128\n' \
    "$(cat c.key)" "$(cat a.pub)" >c.conf
# The same program answers beside wireguard-go, on TCP.
$B "$agent" agent --state-dir "$directory/state" --log-dir "$directory/log" --log-human /dev/null \
    --socket-path "$directory/agent.sock" --http-socket "$directory/http.sock" --boundary-log-proxy-socket-path '' \
    --wireguard-config c.conf --http-address '[::]:7717' --http-auth none --http-auth-none-i-understand \
    --http-allowed-host fd98::2 &
ours=$!
$B iperf3 -s -p 5301 >/dev/null 2>&1 &
both
until $A curl -gsm 2 -o /dev/null 'http://[fd98::3]:4/healthz' && $A curl -gsm 2 -o /dev/null 'http://[fd98::2]:7717/healthz'; do
    sleep 0.2
done

ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
# "MBIT CPU-SECONDS-PER-GIB" of one TCP stream.
stream() { # address, pid, direction
    local before after
    before=$(ticks "$2")
    # shellcheck disable=SC2086
    $A iperf3 -6 -J -c "$1" -p 5301 -t "$seconds" $3 >result.json
    after=$(ticks "$2")
    python3 -c '
import json, sys
end = json.load(open("result.json"))["end"]["sum_received"]
ticks = int(sys.argv[2]) - int(sys.argv[1])
print(round(end["bits_per_second"] / 1e6), round(ticks / 100 / (end["bytes"] / 2**30), 2))' "$before" "$after"
}
ratio() { python3 -c 'import sys; print("%.2f" % (float(sys.argv[1]) / float(sys.argv[2])))' "$1" "$2"; }
for direction in "" -R; do
    read -r rate cpu <<<"$(stream fd98::3 $ours "$direction")"
    read -r floor floor_cpu <<<"$(stream fd98::2 $other "$direction")"
    echo "one stream ${direction:-to us}: $rate Mbit/s, wireguard-go $floor: $(ratio "$rate" "$floor") x; CPU a GiB $cpu s, $floor_cpu s" \
        | sed 's/ -R:/ from us:/'
done
cat >get.py <<'END'
import http.client, sys, time
connection, times = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2])), []
for _ in range(3000):
    begin = time.perf_counter()
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    times.append(time.perf_counter() - begin)
print(round(sorted(times)[len(times) // 2] * 1e6))
END
rate=$($A python3 get.py fd98::3 4); floor=$($A python3 get.py fd98::2 7717)
echo "GET on an open connection, p50: $rate us, wireguard-go $floor: $(ratio "$rate" "$floor") x"
first() { # key, address, udp port, port
    for _ in 1 2 3 4 5 6 7 8 9; do
        connect "$1" "$2" "$3"
        $A curl -gs -o /dev/null -w '%{time_starttransfer}\n' "http://[$2]:$4/healthz"
    done | sort -n | sed -n 5p
}
rate=$(first c fd98::3 51003 4); floor=$(first b fd98::2 51002 7717)
echo "handshake to first byte, median: $rate s, wireguard-go $floor: $(ratio "$rate" "$floor") x"
