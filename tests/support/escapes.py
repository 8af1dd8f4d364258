"""Attempts to get out of a sandbox: small programs that say ESCAPED where one succeeds.

Each is Python, run inside. `attempt(what, function)` calls the function; what it returns, where that
is not None or False, is what was got. Errors are printed, so that an attempt that never reached the
kernel shows. `HOST` holds facts of the host that the test made for this attempt.
"""

from dataclasses import dataclass

PRELUDE = r"""
import ctypes, errno, fcntl, os, socket, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
HOST = {host!r}

def attempt(what, function):
    try:
        got = function()
    except OSError as error:
        print("tried", what, errno.errorcode.get(error.errno, error))
        return
    except Exception as error:
        print("tried", what, repr(error))
        return
    print("ESCAPED" if got not in (None, False) else "tried", what, repr(got)[:200])

def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result

def ok(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "call")
    return True

def readable(path):
    with open(path, "rb") as file:
        return file.read(100) or None

def written(path, text):
    with open(path, "w") as file:
        file.write(text)
    return True

def connected(family, address, timeout=1.0):
    with socket.socket(family) as one:
        one.settimeout(timeout)
        one.connect(address)
    return True
"""


@dataclass(frozen=True)
class Escape:
    """One attempt; ``about`` is what it tries, for people."""

    name: str
    about: str
    code: str


ESCAPES = (
    Escape(
        "mount",
        "mount a file system",
        r"""
attempt("tmpfs", lambda: ok(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
""",
    ),
    Escape(
        "umount",
        "unmount what covers something",
        r"""
for at in (b"/proc", b"/tmp", b"/opt/site", b"/workspace", b"/"):
    attempt(at, lambda: ok(libc.umount2(at, 2)))
""",
    ),
    Escape(
        "remount",
        "make the root writable again",
        r"""
attempt("root", lambda: ok(libc.mount(None, b"/", None, 32, None)))
attempt("usr", lambda: ok(libc.mount(None, b"/usr", None, 32 | 4096, None)))
""",
    ),
    Escape(
        "pivot-root",
        "change the root",
        r"""
attempt("pivot", lambda: call(155, b"/tmp", b"/tmp"))
attempt("chroot", lambda: os.chroot("/tmp") or True)
""",
    ),
    Escape(
        "user-namespace-uncover",
        "unmount what is covered as root of a namespace of one's own",
        r"""
script = "for p in $(cut -d' ' -f2 /proc/self/mounts | tac); do umount -l $p 2>/dev/null; done; cat %s" % HOST["secret"]
attempt("uncover", lambda: "a secret of the host" in subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True).stdout)
""",
    ),
    Escape(
        "user-namespace-root",
        "read root's files as root of a namespace of one's own",
        r"""
attempt("read", lambda: subprocess.run(["unshare", "-Ur", "cat", HOST["secret"], "/etc/shadow"], capture_output=True).stdout or None)
""",
    ),
    Escape(
        "join-namespaces",
        "enter the namespaces of the supervisor",
        r"""
for kind in ("mnt", "net", "pid", "user"):
    attempt(kind, lambda: ok(libc.setns(os.open("/proc/1/ns/" + kind, os.O_RDONLY), 0)))
""",
    ),
    Escape(
        "supervisor-environment",
        "read the supervisor's environment",
        r"""
attempt("environ", lambda: readable("/proc/1/environ"))
""",
    ),
    Escape(
        "supervisor-memory",
        "read and write the supervisor's memory",
        r"""
attempt("mem", lambda: os.open("/proc/1/mem", os.O_RDWR))
buffer = ctypes.create_string_buffer(8)
attempt("process_vm_readv", lambda: call(310, 1, (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8), 1, (ctypes.c_void_p * 2)(0x400000, 8), 1, 0))
""",
    ),
    Escape(
        "supervisor-descriptors",
        "steal the wire",
        r"""
attempt("list", lambda: os.listdir("/proc/1/fd") or None)
attempt("pidfd_getfd", lambda: call(438, call(434, 1, 0), 3, 0))
""",
    ),
    Escape(
        "supervisor-root",
        "look through the supervisor's root and folder",
        r"""
attempt("root", lambda: readable("/proc/1/root" + HOST["secret"]))
attempt("cwd", lambda: os.listdir("/proc/1/cwd/.."))
""",
    ),
    Escape(
        "ptrace",
        "attach to the supervisor",
        r"""
attempt("attach", lambda: ok(libc.ptrace(16, 1, 0, 0)))
attempt("seize", lambda: ok(libc.ptrace(0x4206, 1, 0, 0)))
""",
    ),
    Escape(
        "signal-supervisor",
        "end or stop the supervisor",
        r"""
for number in (9, 19, 15, 6, 11):
    os.kill(1, number)
time.sleep(0.2)
attempt("dead", lambda: not os.path.isdir("/proc/1"))
""",
    ),
    Escape(
        "signal-host",
        "signal a process of the host",
        r"""
attempt("kill", lambda: os.kill(HOST["pid"], 0) is None and open("/proc/%d/cmdline" % HOST["pid"]).read().startswith("sleep"))
""",
    ),
    Escape(
        "oom-victim",
        "have the kernel choose the supervisor when memory is short",
        r"""
attempt("oom", lambda: written("/proc/1/oom_score_adj", "1000"))
""",
    ),
    Escape(
        "proc-memory-of-the-kernel",
        "read the kernel's memory",
        r"""
for path in ("/proc/kcore", "/proc/kallsyms", "/dev/mem", "/dev/kmem", "/dev/port"):
    attempt(path, lambda: path != "/proc/kallsyms" and bool(readable(path)))
attempt("addresses", lambda: any(not line.startswith(b"0000000000000000") for line in open("/proc/kallsyms", "rb")))
""",
    ),
    Escape(
        "sysrq",
        "have the kernel do something",
        r"""
attempt("sysrq", lambda: written("/proc/sysrq-trigger", "h"))
""",
    ),
    Escape(
        "core-pattern",
        "have the host run a program at a crash",
        r"""
attempt("core", lambda: written("/proc/sys/kernel/core_pattern", "|/tmp/x"))
attempt("modprobe", lambda: written("/proc/sys/kernel/modprobe", "/tmp/x"))
""",
    ),
    Escape(
        "binfmt",
        "have the host run an interpreter",
        r"""
attempt("binfmt", lambda: written("/proc/sys/fs/binfmt_misc/register", ":x:M::x::/tmp/x:"))
""",
    ),
    Escape(
        "sysctl",
        "change settings of the kernel",
        r"""
for path in ("kernel/hostname", "kernel/panic", "vm/drop_caches", "fs/file-max", "kernel/yama/ptrace_scope"):
    attempt(path, lambda: written("/proc/sys/" + path, "1"))
""",
    ),
    Escape(
        "host-name",
        "change the host's name",
        r"""
attempt("name", lambda: ok(libc.sethostname(b"x", 1)))
""",
    ),
    Escape(
        "sysfs",
        "write to the kernel's objects",
        r"""
for path in ("/sys/kernel/uevent_helper", "/sys/kernel/profiling", "/sys/power/state"):
    attempt(path, lambda: written(path, "x"))
""",
    ),
    Escape(
        "cgroup",
        "leave the control group or hook its end",
        r"""
attempt("make", lambda: os.mkdir("/sys/fs/cgroup/x") is None)
attempt("join", lambda: written("/sys/fs/cgroup/cgroup.procs", "0"))
attempt("release", lambda: written("/sys/fs/cgroup/release_agent", "/tmp/x"))
attempt("limits", lambda: written("/sys/fs/cgroup/memory.max", "max"))
""",
    ),
    Escape(
        "device-nodes",
        "make a device",
        r"""
for name, number in (("mem", (1, 1)), ("sda", (8, 0)), ("vda", (254, 0)), ("kmsg", (1, 11))):
    attempt(name, lambda: os.mknod("/tmp/" + name, stat.S_IFCHR | 0o666, os.makedev(*number)) is None)
""",
    ),
    Escape(
        "devices",
        "open a device of the host",
        r"""
for name in ("sda", "vda", "nvme0n1", "loop-control", "loop0", "kmsg", "kvm", "fuse", "mapper/control", "net/tun", "nvidiactl", "uinput"):
    attempt(name, lambda: os.open("/dev/" + name, os.O_RDWR))
""",
    ),
    Escape(
        "terminal",
        "type into the terminal of the host",
        r"""
attempt("tty", lambda: fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x") is None)
for fd in (0, 1, 2):
    attempt(fd, lambda: fcntl.ioctl(fd, 0x5412, b"x") is None)
""",
    ),
    Escape(
        "setuid",
        "become root",
        r"""
attempt("setuid", lambda: os.setuid(0) is None)
attempt("setresuid", lambda: os.setresuid(0, 0, 0) is None)
attempt("setgroups", lambda: os.setgroups([0]) is None)
""",
    ),
    Escape(
        "setuid-programs",
        "become root by a program that is root's",
        r"""
for command in (["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"], ["pkexec", "id", "-u"], ["newgrp", "root"]):
    attempt(command[0], lambda: subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL).stdout.strip() == "0")
attempt("no_new_privs", lambda: "NoNewPrivs:\t1" not in open("/proc/self/status").read())
""",
    ),
    Escape(
        "capabilities",
        "gain capabilities",
        r"""
status = open("/proc/self/status").read()
attempt("sets", lambda: any(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"))))
attempt("file", lambda: os.setxattr("/workspace", "security.capability", b"\1\0\0\2" + b"\xff" * 16) is None)
""",
    ),
    Escape(
        "open-by-handle",
        "open the host's files by their numbers",
        r"""
handle = struct.pack("Ii", 8, 1) + struct.pack("II", 2, 0)
attempt("handle", lambda: call(304, os.open("/workspace", os.O_RDONLY), handle, 0))
""",
    ),
    Escape(
        "kernel-modules",
        "load code into the kernel",
        r"""
attempt("init_module", lambda: call(175, b"x", 1, b""))
attempt("kexec", lambda: call(246, 0, 0, 0, 0))
""",
    ),
    Escape(
        "clock",
        "change the host's clock",
        r"""
attempt("settime", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()) is None)
""",
    ),
    Escape(
        "reboot",
        "stop the machine, or its swap",
        r"""
attempt("reboot", lambda: call(169, 0xfee1dead, 672274793, 0, 0))
attempt("swapoff", lambda: ok(libc.swapoff(b"/dev/vdb")))
""",
    ),
    Escape(
        "bpf",
        "load a program into the kernel",
        r"""
attempt("bpf", lambda: call(321, 5, ctypes.create_string_buffer(120), 120))
""",
    ),
    Escape(
        "perf-events",
        "watch the whole machine",
        r"""
attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0) + bytes(112), 128)
attempt("perf", lambda: call(298, attributes, -1, 0, -1, 0))
""",
    ),
    Escape(
        "keyrings",
        "read a key of the host",
        r"""
attempt("request", lambda: call(249, b"user", HOST["key"].encode(), None, 0))
""",
    ),
    Escape(
        "own-keyrings",
        "keep a key where a later session could find it",
        r"""
attempt("add", lambda: call(248, b"user", b"left", b"x", 1, -4))
attempt("session", lambda: call(250, 1, b"shared"))
""",
    ),
    Escape(
        "namespaces",
        "make a namespace of one's own",
        r"""
for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("net", 0x40000000), ("time", 0x80)):
    attempt(name, lambda: ok(libc.unshare(flag)))
def made(number, *arguments):
    child = libc.syscall(number, *arguments)
    if child == 0:
        os._exit(0)
    return child > 0
wanted = ctypes.create_string_buffer(struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
attempt("clone", lambda: made(56, 0x10000000 | 17, 0, 0, 0, 0))
attempt("clone3", lambda: made(435, wanted, 64))
""",
    ),
    Escape(
        "new-mount-calls",
        "mount by the newer calls",
        r"""
attempt("fsopen", lambda: call(430, b"tmpfs", 0))
attempt("open_tree", lambda: call(428, -100, b"/workspace", 1))
attempt("move_mount", lambda: call(429, -100, b"/tmp", -100, b"/workspace", 0))
""",
    ),
    Escape(
        "io-uring",
        "have the kernel work past the filter",
        r"""
attempt("setup", lambda: call(425, 1, ctypes.create_string_buffer(120)))
""",
    ),
    Escape(
        "userfaultfd",
        "hold the kernel still in the middle of a copy",
        r"""
for flags in (0, 1):
    attempt(flags, lambda: call(323, flags))
""",
    ),
    Escape(
        "other-architectures",
        "call the kernel by the numbers of another architecture",
        r"""
attempt("x32", lambda: call(0x40000000 + 39))
""",
    ),
    Escape(
        "vsock",
        "reach the machine that runs this virtual machine",
        r"""
for cid in (1, 2):
    attempt(cid, lambda: connected(socket.AF_VSOCK, (cid, 1024)))
attempt("socket", lambda: socket.socket(socket.AF_VSOCK).fileno())
""",
    ),
    Escape(
        "disk-layout",
        "reach the file system under the workspace, or all of the disk",
        r"""
device = os.stat("/workspace").st_dev
attempt("node", lambda: os.mknod("/tmp/disk", stat.S_IFBLK | 0o666, device) is None)
attempt("open", lambda: os.open("/dev/loop%d" % os.minor(device), os.O_RDWR))
attempt("quota", lambda: call(179, 0x80000800, b"/dev/vda", 0, ctypes.create_string_buffer(128)))
attempt("image", lambda: os.path.exists("/workspace.img") or os.path.exists("/workspace/../workspace.img"))
""",
    ),
    Escape(
        "limits",
        "raise one's limits",
        r"""
import resource
for name in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
    soft, hard = resource.getrlimit(name)
    attempt(name, lambda: hard == resource.RLIM_INFINITY and name == resource.RLIMIT_FSIZE or hard != resource.RLIM_INFINITY and resource.setrlimit(name, (hard, hard + 1)) is None)
""",
    ),
    Escape(
        "scheduling",
        "come before everybody else",
        r"""
attempt("fifo", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)) is None)
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -10) is None)
""",
    ),
    Escape(
        "docker-socket",
        "reach the engine",
        r"""
for path in ("/var/run/docker.sock", "/run/docker.sock", HOST["engine"], "/run/podman/podman.sock", "/run/containerd/containerd.sock"):
    attempt(path, lambda: connected(socket.AF_UNIX, path))
""",
    ),
    Escape(
        "host-sockets",
        "reach a Unix socket of the host",
        r"""
attempt("path", lambda: connected(socket.AF_UNIX, HOST["socket"]))
attempt("dbus", lambda: connected(socket.AF_UNIX, "/run/dbus/system_bus_socket"))
""",
    ),
    Escape(
        "abstract-sockets",
        "reach an abstract socket of the host",
        r"""
attempt("abstract", lambda: connected(socket.AF_UNIX, "\0" + HOST["abstract"]))
""",
    ),
    Escape(
        "host-ports",
        "reach a port of the host",
        r"""
for address in ("127.0.0.1", *HOST["addresses"]):
    attempt(address, lambda: connected(socket.AF_INET, (address, HOST["port"])))
""",
    ),
    Escape(
        "metadata",
        "reach a cloud's metadata",
        r"""
for address in ("169.254.169.254", "100.100.100.200"):
    attempt(address, lambda: connected(socket.AF_INET, (address, 80)))
attempt("v6", lambda: connected(socket.AF_INET6, ("fd00:ec2::254", 80)))
""",
    ),
    Escape(
        "outside",
        "reach the outside, by address and by name",
        r"""
attempt("address", lambda: connected(socket.AF_INET, ("1.1.1.1", 443)))
attempt("name", lambda: socket.getaddrinfo("example.org", 80))
""",
    ),
    Escape(
        "raw-sockets",
        "read the network's packets",
        r"""
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).fileno())
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).fileno())
""",
    ),
    Escape(
        "other-doors",
        "go through the door of another session",
        r"""
for port in range(4180, 4190):
    attempt(port, lambda: connected(socket.AF_INET, ("127.0.0.1", port)))
attempt("sockets", lambda: os.listdir("/run/doors"))
""",
    ),
    Escape(
        "shared-memory",
        "meet others in shared memory",
        r"""
attempt("system-v", lambda: libc.shmget(HOST["ipc"], 0, 0o600) >= 0)
attempt("posix", lambda: os.path.exists("/dev/shm/" + HOST["shm"]))
""",
    ),
    Escape(
        "toolchain",
        "change the tools that others use",
        r"""
for path in ("/usr/bin/x", "/usr/lib/x", "/opt/site/x", "/etc/passwd", "/opt/supervisor.py", "/opt/doors.py", sys.prefix + "/x"):
    attempt(path, lambda: written(path, "x"))
""",
    ),
    Escape(
        "hard-links",
        "take a file of others into the workspace",
        r"""
attempt("link", lambda: os.link("/etc/passwd", "/workspace/linked") is None)
attempt("supervisor", lambda: os.link("/opt/supervisor.py", "/workspace/linked2") is None)
""",
    ),
    Escape(
        "host-folders",
        "find the archive, the checkout, the home",
        r"""
for path in HOST["folders"]:
    attempt(path, lambda: bool(os.listdir(path)))
""",
    ),
)
