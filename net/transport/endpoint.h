// Stream sockets of processes that are started by hand: Unix sockets in the abstract namespace on
// one host, and TCP between hosts. Also packets over such sockets, with deadlines. Read by
// rendezvous_*.cpp and sockets.cpp.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hetu::comm {

/// A file descriptor that is closed on destruction.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

/// Address of a socket: either an IP address and port, or a name in the abstract namespace of this
/// host's network namespace.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  bool is_unix() const { return storage.ss_family == AF_UNIX; }
  bool is_loopback() const;
  /// Returns true if the address belongs to this host. Asks the system by binding to it.
  bool is_own() const;
  /// Returns the numeric IP address, or "" for a Unix socket.
  std::string host() const;
  int port() const;
  Address with_port(int port) const;
};

/// Returns the address of an abstract Unix socket.
Address unix_address(const std::string& name);
/// Returns the wildcard address and port 0 of the same address family as `like`.
Address any_address(const Address& like);
/// Resolves a host name or number to its addresses. Throws Config, naming the environment variable
/// `variable` that the host came from.
std::vector<Address> resolve(const std::string& host, int port, const char* variable);
/// Returns the address of a socket (own_address) or of its other end (peer_address).
Address own_address(const Socket& socket);
Address peer_address(const Socket& socket);

/// The user and process that hold the other end of a Unix socket.
struct PeerOwner {
  uid_t user = 0;
  pid_t pid = 0;
};
/// Returns the owner of the other end of a Unix socket. Throws Comm if the system refuses.
PeerOwner owner_of(const Socket& socket);

/// Returns a listening socket, or an empty socket and errno.
Socket listen_at(const Address& address);
/// Accepts a waiting connection as a non-blocking socket. Returns an empty socket if there is none.
Socket accept_from(const Socket& listener);
/// Opens a non-blocking connection within `patience_s` seconds. Returns an empty socket and errno
/// on failure.
Socket connect_to(const Address& address, double patience_s);

/// Callback that runs a few times per second during a wait. It throws to end the wait (Ctrl-C).
using WhileWaiting = std::function<void()>;

/// Waits for events of poll(2). Returns false once now_ns() reaches `until_ns`, or after a signal.
bool wait_for(int fd, short events, std::int64_t until_ns);

/// Packs fields into one text; unpack_fields is the inverse, and returns nullopt for malformed
/// text.
std::string pack_fields(const std::vector<std::string>& fields);
std::optional<std::vector<std::string>> unpack_fields(std::string_view text);

/// Reads packets from a socket. A packet is four bytes of length (big-endian) and that many bytes.
class PacketReader {
 public:
  /// Result of a read: Waiting (incomplete), Whole, Ended (connection closed or failed), Foreign
  /// (longer than allowed, so not from Hetu).
  enum class State : std::uint8_t { Waiting, Whole, Ended, Foreign };
  explicit PacketReader(std::size_t longest) : longest_(longest) {}
  /// Sets the length limit of further packets, in bytes, once the peer is trusted more.
  void allow(std::size_t longest) { longest_ = longest; }
  /// Reads the available bytes, but not beyond the end of a packet.
  State read(const Socket& socket);
  /// Returns the packet that was read. The next read starts another packet.
  std::string take();

 private:
  std::size_t longest_;
  std::string data_;
};

/// Sends a packet. Returns false if the other end is gone or does not take it by `until_ns`.
bool send_packet(const Socket& socket, std::string_view packet, std::int64_t until_ns);

}  // namespace hetu::comm
