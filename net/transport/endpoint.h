// Stream sockets as processes use them that were started by hand: Unix sockets in the abstract
// namespace on one host, TCP between hosts; packets over them, with deadlines. Read by
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

/// A file descriptor that is closed with its owner.
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

/// Where a socket is: an IP address and port, or a name that only this host's network namespace
/// knows.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  bool is_unix() const { return storage.ss_family == AF_UNIX; }
  bool is_loopback() const;
  /// Whether it is one of this host's, by asking the system for it.
  bool is_own() const;
  /// The numeric IP address, "" of a Unix socket.
  std::string host() const;
  int port() const;
  Address with_port(int port) const;
};

Address unix_address(const std::string& name);
/// Any address of this host of the same family.
Address any_address(const Address& like);
/// The addresses of a host by name or number. Throws Config, naming `variable`.
std::vector<Address> resolve(const std::string& host, int port, const char* variable);
/// Where a socket is, and where its other end is.
Address own_address(const Socket& socket);
Address peer_address(const Socket& socket);

/// Who holds the other end of a Unix socket.
struct PeerOwner {
  uid_t user = 0;
  pid_t pid = 0;
};
PeerOwner owner_of(const Socket& socket);

/// A listening socket, or none and errno.
Socket listen_at(const Address& address);
/// A connection that somebody has opened, non-blocking; none if there is none.
Socket accept_from(const Socket& listener);
/// A connection, non-blocking, or none and errno; at most `patience_s` long.
Socket connect_to(const Address& address, double patience_s);

/// Called while a wait lasts, some times a second: throws what ends it (Ctrl-C).
using WhileWaiting = std::function<void()>;

/// Waits for events of poll(2); false at `until_ns` of now_ns(), or after a signal.
bool wait_for(int fd, short events, std::int64_t until_ns);

/// Fields as one text, and back: nullopt if the text is no such thing.
std::string pack_fields(const std::vector<std::string>& fields);
std::optional<std::vector<std::string>> unpack_fields(std::string_view text);

/// Packets that come over a socket: four bytes of length, then so many.
class PacketReader {
 public:
  enum class State : std::uint8_t { Waiting, Whole, Ended, Foreign };
  explicit PacketReader(std::size_t longest) : longest_(longest) {}
  /// Of packets from here on, from someone who is known better.
  void allow(std::size_t longest) { longest_ = longest; }
  /// Reads what there is, up to the end of a packet.
  State read(const Socket& socket);
  /// The packet that was read; the next read begins another one.
  std::string take();

 private:
  std::size_t longest_;
  std::string data_;
};

/// Sends a packet; false if the other end is gone or does not take it by `until_ns`.
bool send_packet(const Socket& socket, std::string_view packet, std::int64_t until_ns);

}  // namespace hetu::comm
