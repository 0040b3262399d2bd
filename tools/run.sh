#!/bin/bash
# Boots the image in QEMU, ends it, or serves the same engine on this machine.
#
#   tools/run.sh run   [--dir DIR] [--serial SOCKET] [--bare] [--append WORDS] [--overlay FILE.cpio]
#                      [--disk FILE] [--secure] [--data FILE] [--more FILE] [--stick FILE]
#                      [--web COMMAND] [--wire SOCKET] [--clock DATE]
#   tools/run.sh stop  [--dir DIR]
#   tools/run.sh serve [--dir DIR] [--port PORT]
#
# DIR (default build/run) keeps a developer's API key and SSH key, made once, and what a running box
# was given: url, certificate.pem, ssh_port, qemu.pid.  The boot tests use the same script, so they boot what people
# boot: --serial gives them the serial line as a socket, and QEMU's monitor beside it, --bare leaves out all site data (a box on
# metal), --append adds kernel command line words, --overlay a second archive over the image.
# --disk starts from a copy of build/v4box.img as metal does, by its firmware; --data gives such a disk
# to a kernel started directly, which is there sooner.  --secure takes the firmware that knows Secure
# Boot, without keys as long as nobody gave it any.  --more is a second disk, --stick one on USB;
# --web starts COMMAND, without commas, for each connection of the box to 10.0.2.100:80.  Who has the
# datagram SOCKET is on the box's network, a frame a datagram, and QEMU at SOCKET.qemu; --clock is what
# the hardware's clock says at power-on.
set -eu
cd "$(dirname "$0")/.."

DIR=build/run SERIAL='' BARE=no APPEND='' OVERLAY='' PORT=8080 DISK='' DATA='' MORE='' STICK='' WEB='' WIRE='' CLOCK=utc SECURE=no
KERNEL=build/v4box-vmlinuz INITRD=build/v4box-initramfs.cpio.zst BASE=build/v4box-base.cpio.zst MODEL=rootfs/models/demo
FIRMWARE=/usr/share/OVMF/OVMF_CODE_4M.fd FIRMWARE_SECURE=/usr/share/OVMF/OVMF_CODE_4M.secboot.fd FIRMWARE_VARIABLES=/usr/share/OVMF/OVMF_VARS_4M.fd
MEMORY_MIB=1024     # the image unpacked is 60 MiB, the engine less than 200
PROBE_SECONDS=10    # a kernel under working KVM panics for want of a root within 2
HEALTHY_SECONDS=300 # the slowest boot seen under TCG, on a loaded machine, took 60
STOP_SECONDS=20     # poweroff takes 3

die() {
    echo "run.sh: $*" >&2
    exit 2
}

action=${1:-}
[ $# -gt 0 ] && shift
while [ $# -gt 0 ]; do
    case $1 in
    --bare) BARE=yes && shift && continue ;;
    --secure) SECURE=yes && shift && continue ;;
    --dir | --serial | --append | --overlay | --port | --disk | --data | --more | --stick | --web | --wire | --clock) [ $# -gt 1 ] || die "$1 needs a value" ;;
    *) die "unknown argument '$1'" ;;
    esac
    case $1 in
    --dir) DIR=$2 ;;
    --serial) SERIAL=$2 ;;
    --append) APPEND=$2 ;;
    --overlay) OVERLAY=$2 ;;
    --port) PORT=$2 ;;
    --disk) DISK=$2 ;;
    --data) DATA=$2 ;;
    --more) MORE=$2 ;;
    --stick) STICK=$2 ;;
    --web) WEB=$2 ;;
    --wire) WIRE=$2 ;;
    --clock) CLOCK=$2 ;;
    esac
    shift 2
done

# The first port from $1 on that nobody listens on.
free_port() {
    local port
    for ((port = $1; port < $1 + 100; port++)); do
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    die "no free port from $1 on"
}

random_base62() {
    # head closes the pipe early, which tr reports as a failure.
    (LC_ALL=C tr -dc A-Za-z0-9 </dev/urandom || true) 2>/dev/null | head -c "$1"
}

# One API key (the secret here, its hash in the keys file) and one SSH key, made once.
developer_keys() {
    umask 077
    mkdir -p "$DIR"
    if [ ! -s "$DIR/keys" ]; then
        local id secret hash
        id=$(random_base62 8)
        secret=ds_${id}_$(random_base62 32)
        hash=$(printf %s "$secret" | sha256sum)
        printf '%s\n' "$secret" >"$DIR/api_key"
        printf '%s %s developer\n' "$id" "${hash%% *}" >"$DIR/keys"
    fi
    if [ ! -s "$DIR/ssh_key" ]; then
        ssh-keygen -q -t ed25519 -N '' -C developer -f "$DIR/ssh_key"
    fi
}

# Whether KVM boots a kernel here.  The device may exist and open, and the guest still say nothing,
# so only a boot tells.  Asked once per boot of this machine.
kvm_works() {
    local note boot_id
    [ -r /dev/kvm ] && [ -w /dev/kvm ] || return 1
    boot_id=$(cat /proc/sys/kernel/random/boot_id)
    note=build/kvm-$boot_id
    if [ ! -e "$note" ]; then
        timeout --kill-after=2 $PROBE_SECONDS qemu-system-x86_64 -machine q35 -accel kvm -cpu host \
            -m 256 -display none -monitor none -no-reboot -serial "file:$note.log" \
            -kernel $KERNEL -append 'console=ttyS0 panic=-1' 2>"$note.err" </dev/null || true
        grep -q 'Linux version' "$note.log" && echo yes >"$note" || echo no >"$note"
    fi
    [ "$(cat "$note")" = yes ]
}

# Waits until $1 answers, as long as process $2 lives; further words are curl's.
answers() {
    local url=$1 alive=$2 waited=0
    shift 2
    until curl -sf -o /dev/null --max-time 2 "$@" "$url/healthz"; do
        kill -0 "$alive" 2>/dev/null && [ $((waited += 1)) -lt $HEALTHY_SECONDS ] || return 1
        sleep 1
    done
}

# The three lines; further words are curl's.
announce() {
    local url=$1 key curl
    shift
    key=$(cat "$DIR/api_key")
    curl="curl${*:+ $*}"
    printf '%s\n' "" "URL   $url/v1" "key   $key" \
        "try   $curl -N $url/v1/chat/completions -H 'Authorization: Bearer $key' -H 'Content-Type: application/json' -d '{\"model\":\"$(model_id "$url" "$key" "$@")\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"The password of the lower scooter is cellar3527. What is the password of the lower scooter?\"}]}'" >&2
}

# What the box shows over SSH is its own certificate, whoever else may listen on the port.
announce_box() {
    answers "$1" "$2" --insecure || return 0
    console tls show >"$DIR/certificate.pem" && announce "$1" --cacert "$DIR/certificate.pem"
}

announce_served() {
    answers "$1" "$2" && announce "$1"
}

# One command of the box's console, over SSH.
console() {
    timeout $STOP_SECONDS ssh -q -i "$DIR/ssh_key" -p "$(cat "$DIR/ssh_port")" -F /dev/null \
        -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        -o IdentitiesOnly=yes admin@127.0.0.1 "$@" </dev/null
}

# The name that the API gives its one model.
model_id() {
    local url=$1 key=$2
    shift 2
    curl -sf --max-time 10 "$@" -H "Authorization: Bearer $key" "$url/v1/models" |
        sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' | head -n 1
}

# The process of $DIR/$1.pid, if it lives and its program's name begins with $2: a number alone may
# be anybody's by now.
running_pid() {
    local pid
    pid=$(cat "$DIR/$1.pid" 2>/dev/null) || return 1
    case $(cat "/proc/$pid/comm" 2>/dev/null) in
    "$2"*) echo "$pid" ;;
    *) return 1 ;;
    esac
}

run() {
    developer_keys
    [ -z "$DISK" ] || [ -z "$DATA" ] || die "--disk and --data exclude each other"
    running_pid qemu qemu-system >/dev/null && die "a box runs already in $DIR; make stop ends it"
    local accel=(-accel "tcg,thread=multi" -cpu max) isa=baseline
    kvm_works && accel=(-accel kvm -cpu host) isa=auto
    local ssh tls serial=(-serial mon:stdio) site=() boot=() drive=() initrd=$INITRD
    [ -z "$DATA" ] || initrd=$BASE
    ssh=$(free_port 2222)
    tls=$(free_port 8443)
    echo "https://127.0.0.1:$tls" >"$DIR/url"
    echo "$ssh" >"$DIR/ssh_port"
    [ -z "$SERIAL" ] || serial=(-serial "unix:$SERIAL,server=on,wait=on"
        -monitor "unix:$SERIAL.monitor,server=on,wait=off")
    [ "$BARE" = yes ] || site=(-fw_cfg "name=opt/v4box/keys,file=$DIR/keys"
        -fw_cfg "name=opt/v4box/authorized_keys,file=$DIR/ssh_key.pub")
    if [ -n "$OVERLAY" ]; then
        # The kernel unpacks one archive after the other, the later one wins; it looks for a plain
        # archive at multiples of four bytes only.
        cp "$initrd" "$DIR/initrd"
        initrd=$DIR/initrd
        truncate -s %4 "$initrd"
        cat "$OVERLAY" >>"$initrd"
    fi
    # no_timer_check: on a starved machine the emulated timer ticks too seldom for the kernel, which panics.
    boot=(-kernel $KERNEL -initrd "$initrd"
        -append "console=ttyS0 quiet loglevel=4 panic=10 net.ifnames=0 no_timer_check v4box.isa=$isa ${DATA:+v4box.storage=disk} $APPEND")
    local machine=(-machine q35) firmware=$FIRMWARE
    if [ "$SECURE" = yes ]; then
        # Only the firmware itself may then write its variables.
        machine=(-machine q35,smm=on -global driver=cfi.pflash01,property=secure,value=on)
        firmware=$FIRMWARE_SECURE
    fi
    if [ -n "$DISK" ]; then
        # The command line is in the file that boots, so under TCG the processor itself must be one
        # without AVX2.
        [ "$isa" = auto ] || accel=(-accel "tcg,thread=multi" -cpu Nehalem)
        [ -e "$DIR/firmware" ] || cp $FIRMWARE_VARIABLES "$DIR/firmware"
        boot=(-drive "if=pflash,unit=0,format=raw,readonly=on,file=$firmware"
            -drive "if=pflash,unit=1,format=raw,file=$DIR/firmware")
        # One write of a variable takes that firmware seconds, emulated, and more than the watchdog
        # waits on a busy machine.
        [ "$SECURE" = yes ] || boot+=(-device i6300esb -action watchdog=reset)
    fi
    [ -z "$DISK$DATA" ] || drive=(-drive "if=none,id=disk,format=raw,file=$DISK$DATA"
        -device virtio-blk-pci,drive=disk)
    [ -z "$MORE" ] || drive+=(-drive "if=none,id=more,format=raw,readonly=on,file=$MORE"
        -device virtio-blk-pci,drive=more)
    [ -z "$STICK" ] || drive+=(-device qemu-xhci -drive "if=none,id=stick,format=raw,readonly=on,file=$STICK"
        -device usb-storage,drive=stick)
    # Whoever has the socket $WIRE is on the guest's network, too, and speaks in frames.
    local wire=() nic=net
    [ -z "$WIRE" ] || nic=nic wire=(-netdev hubport,id=own,hubid=0,netdev=net
        -netdev "dgram,id=wire,local.type=unix,local.path=$WIRE.qemu,remote.type=unix,remote.path=$WIRE"
        -netdev hubport,id=other,hubid=0,netdev=wire -netdev hubport,id=nic,hubid=0)
    # restrict=on: the guest reaches nobody; the two forwards listen on loopback only.
    qemu-system-x86_64 "${machine[@]}" "${accel[@]}" -smp 2 -m $MEMORY_MIB -display none -no-reboot \
        -pidfile "$DIR/qemu.pid" "${serial[@]}" "${site[@]}" \
        -netdev "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:$tls-:443,hostfwd=tcp:127.0.0.1:$ssh-:22${WEB:+,guestfwd=tcp:10.0.2.100:80-cmd:$WEB}" \
        "${wire[@]}" -device virtio-net-pci,netdev=$nic -device virtio-rng-pci -rtc "base=$CLOCK" \
        "${drive[@]}" "${boot[@]}" <&0 &
    local qemu=$! code=0
    trap 'stop' INT TERM
    [ "$BARE" = yes ] || announce_box "https://127.0.0.1:$tls" $qemu &
    wait $qemu || code=$?
    rm -f "$DIR/qemu.pid"
    return $code
}

# Waits until a process has ended; one that does not is killed.
wait_gone() {
    local pid=$1 what=$2 waited=0
    while kill -0 "$pid" 2>/dev/null; do
        if [ $((waited += 1)) -gt $STOP_SECONDS ]; then
            echo "run.sh: $what did not end in $STOP_SECONDS s, killing it" >&2
            kill -9 "$pid"
            return
        fi
        sleep 1
    done
}

# Asks the console to switch the box off, and a served engine to end.
stop() {
    local pid found=no
    if pid=$(running_pid qemu qemu-system); then
        found=yes
        console poweroff || true
        wait_gone "$pid" 'the box'
        rm -f "$DIR/qemu.pid"
    fi
    if pid=$(running_pid serve engine); then
        found=yes
        kill "$pid"
        wait_gone "$pid" 'the engine'
        rm -f "$DIR/serve.pid"
    fi
    [ $found = yes ] || echo "run.sh: nothing runs in $DIR"
}

serve() {
    developer_keys
    running_pid serve engine >/dev/null && die "an engine is served already; make stop ends it"
    PORT=$(free_port "$PORT")
    announce_served "http://127.0.0.1:$PORT" $$ &
    echo $$ >"$DIR/serve.pid" # kept by exec
    exec build/engine serve --model $MODEL --listen "127.0.0.1:$PORT" --keys "$DIR/keys" \
        --admin "$DIR/engine.sock"
}

case $action in
run | stop | serve) $action ;;
*) die "usage: tools/run.sh run|stop|serve, see the top of this file" ;;
esac
