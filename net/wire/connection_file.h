// The connection file, by which processes that heturun did not start find parameter servers. It
// holds the keys and the endpoints of each server. Written by `hetu ps serve`; read by
// `hetu ps status` and hetu.ps.connect.
#pragma once
#include <string>

namespace hetu::ps {

/// Two CURVE key pairs. Each key has 64 hexadecimal digits.
struct JobKeys {
  std::string server_public;
  std::string server_secret;  ///< "" in a copy that is only for clients
  std::string worker_public;
  std::string worker_secret;
};

/// The contents of a connection file. The file consists of these lines:
///
///   hetu parameter servers 1
///   server-key PUBLIC SECRET
///   worker-key PUBLIC SECRET
///   server K of N at ENDPOINT,ENDPOINT…      one line per server
///
/// If a server has several lines, the last one counts. Lines that begin with "#" are comments.
struct Connection {
  JobKeys keys;
  int servers = 0;  ///< number of servers; 0 if none has been started yet
  /// Addresses of all servers, as parse_addresses (address.h) reads them. "" if a server has not
  /// been started yet.
  std::string address;
  int missing = 0;  ///< the first server that has not been started
};

/// Writes a file with these keys that only its owner may read. Returns false if the file exists
/// already. Throws Io.
bool make_connection_file(const std::string& path, const JobKeys& keys);

/// Reads a connection file. Throws Io if it cannot be read. Throws Config if it has another format
/// (naming file and line), if other users may access it, or if it belongs to another user.
Connection read_connection_file(const std::string& path);

/// Appends a server's line. Throws Io.
void add_server(const std::string& path, int server, int servers, const std::string& endpoints);

/// Returns the address for `text`, which is either an address (ENDPOINT@KEYS) or the path of a
/// connection file. Throws as read_connection_file does. Also throws Config if the file lacks a
/// server, or if an endpoint has no keys.
std::string address_from(const std::string& text);

}  // namespace hetu::ps
