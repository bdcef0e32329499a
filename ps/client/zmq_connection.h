// A connection to one parameter server, for the ZeroMQ sources of ps/client.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "net/keys/sockets.h"
#include "net/wire/address.h"
#include "ps/server/messages.h"

namespace hetu::ps {

inline constexpr int kWatched = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

/// The endpoint and keys of one server.
struct ServerAddress {
  std::string endpoint;
  Address address;
};

/// Parses an address in the format that heturun writes. Throws Config.
inline std::vector<ServerAddress> servers_of(const std::string& address) {
  std::vector<ServerAddress> servers;
  for (const Address& each : parse_addresses(address, "HETU_SERVERS")) {
    servers.push_back({choose_endpoint(each.endpoints), each});
  }
  return servers;
}

/// A DEALER socket to one server, and the events of its connection. A lost connection gets a new
/// object, so that nothing queued for the old one is sent.
class Connection {
 public:
  Connection(zmq::context_t& context, const ServerAddress& server, const std::string& name)
      : socket_(context, zmq::socket_type::dealer), monitor_(context, zmq::socket_type::pair) {
    socket_.set(zmq::sockopt::linger, 1000);
    if (!curve::is_private(server.endpoint)) {
      curve::set_key(socket_, ZMQ_CURVE_SERVERKEY, server.address.server_key);
      curve::set_key(socket_, ZMQ_CURVE_PUBLICKEY, server.address.public_key);
      curve::set_key(socket_, ZMQ_CURVE_SECRETKEY, server.address.secret_key);
    }
    socket_.set(zmq::sockopt::maxmsgsize, server::kLongestFrame);
    socket_.set(zmq::sockopt::sndhwm, 0);  // the client limits what is in flight
    socket_.set(zmq::sockopt::rcvhwm, 0);
    if (zmq_socket_monitor(socket_.handle(), name.c_str(), kWatched) != 0) throw zmq::error_t();
    monitor_.connect(name);
    monitor_.set(zmq::sockopt::linger, 0);
    socket_.connect(server.endpoint);
  }
  ~Connection() { zmq_socket_monitor(socket_.handle(), nullptr, 0); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  zmq::socket_t& socket() { return socket_; }
  zmq::socket_t& monitor() { return monitor_; }
  /// Discards what is still queued when the socket closes.
  void forget() { socket_.set(zmq::sockopt::linger, 0); }

  /// Returns the events of kWatched since the last call, as bits.
  int events() {
    int all = 0;
    zmq::message_t event;
    while (monitor_.recv(event, zmq::recv_flags::dontwait)) {
      // second part: the endpoint
      if (!event.more() || event.size() < sizeof(std::uint16_t)) continue;
      std::uint16_t number = 0;
      std::memcpy(&number, event.data(), sizeof number);
      all |= number;
    }
    return all;
  }

 private:
  zmq::socket_t socket_;
  zmq::socket_t monitor_;
};

}  // namespace hetu::ps
