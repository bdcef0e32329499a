"""Addresses of this host, and the network that several hosts share. heturun and keepers use it for jobs on several hosts."""
import array
import fcntl
import ipaddress
import socket
import struct

SIOCGIFADDR = 0x8915


def interfaces():
    """Returns the IPv4 address of each network interface of this host: {"lo": "127.0.0.1", ...}."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("256s", name.encode()[:15]))
            try:
                fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue  # no IPv4 address
            found[name] = socket.inet_ntoa(request[20:24].tobytes())
    return found


def common_network(addresses):
    """Returns the longest IPv4 prefix from /16 to /30 that all addresses share, such as "10.0.0.0/24", or None."""
    numbers = [int(ipaddress.IPv4Address(a)) for a in addresses]
    for prefix in range(30, 15, -1):
        if len({n >> (32 - prefix) for n in numbers}) == 1:
            return str(ipaddress.ip_network((numbers[0] >> (32 - prefix) << (32 - prefix), prefix)))
    return None


def inside(address, network):
    """Returns true if an IPv4 address is in a network such as "10.0.0.0/24"."""
    return ipaddress.ip_address(address) in ipaddress.ip_network(network)


def own_addresses(wanted):
    """Returns this host's IPv4 addresses for a job on several hosts.

    wanted: an interface, whose address is returned; or a network in the form of common_network(), whose addresses on this
    host are returned. If there are none, and for None, all addresses except loopback are returned.
    Raises OSError if there is no address, or no such interface.
    """
    own = interfaces()
    if wanted in own:
        return [own[wanted]]
    if wanted and "/" not in wanted:
        raise OSError(f"this host has no network interface '{wanted}'; its interfaces are {', '.join(sorted(own))}")
    mine = [address for address in own.values() if not address.startswith("127.")]
    if wanted:
        mine = [address for address in mine if inside(address, wanted)] or mine
    if not mine:
        raise OSError("no IPv4 address other than loopback; a job on several hosts needs one on each host")
    return mine


def resolve(host):
    """Returns the host's IPv4 address, or None if the name has none. (It may be an alias of the ssh configuration.)"""
    try:
        return socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0]
    except OSError:
        return None


def is_this_host(host, names=None, own=None):
    """Returns true if a name of the cluster file refers to this machine."""
    names = names or (socket.gethostname(), socket.gethostname().split(".")[0])
    if host in ("localhost", "127.0.0.1", *names):
        return True
    address = resolve(host)
    own = own if own is not None else set(interfaces().values())
    return address is not None and (address in own or address.startswith("127."))


def shared_network(hosts, own):
    """Returns (network, addresses): the network that the hosts share, or None if unknown, and the address of each host, or
    None.

    A host that resolves to 127.x is this one. It gets the address in `own` (interface -> address) that shares the longest
    prefix with the others.
    """
    addresses = [resolve(host) for host in hosts]
    if None in addresses:
        return None, addresses
    others = [a for a in addresses if not a.startswith("127.")]
    if len(others) == len(addresses):
        return common_network(others), addresses
    mine = [a for a in own.values() if not a.startswith("127.")]
    candidates = [(n, a) for a in mine for n in [common_network(others + [a])] if n]
    if not candidates:
        return None, addresses
    network, address = max(candidates, key=lambda pair: int(pair[0].split("/")[1]))
    return network, [address if a.startswith("127.") else a for a in addresses]
