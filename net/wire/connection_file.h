// The file by which processes that heturun did not start find parameter servers: keys, and where
// each server listens. Made by `hetu ps serve`, read by `hetu ps status` and hetu.ps.connect.
#pragma once
#include <string>

namespace hetu::ps {

/// Two CURVE key pairs, 64 hexadecimal digits each.
struct JobKeys {
  std::string server_public;
  std::string server_secret;  ///< "" in a copy for clients alone
  std::string worker_public;
  std::string worker_secret;
};

/// What a connection file says. Lines of text: "hetu parameter servers 1", "server-key PUBLIC
/// SECRET", "worker-key PUBLIC SECRET", and "server K of N at ENDPOINTS" of each server, with
/// commas between endpoints; of several lines of one server the last holds. "#" begins a remark.
struct Connection {
  JobKeys keys;
  int servers = 0;      ///< 0: none has been started yet
  std::string address;  ///< of all servers, as parse_addresses (address.h) reads it; "" if one
                        ///< has not been started yet
  int missing = 0;      ///< the first of those
};

/// Writes a file with these keys that its owner alone may read; false if one is there already.
/// Throws Io.
bool make_connection_file(const std::string& path, const JobKeys& keys);

/// Throws Io where it cannot be read; Config, naming file and line, where it is no such file, has
/// others' permission to read it, or belongs to somebody else.
Connection read_connection_file(const std::string& path);

/// Adds a server's line. Throws Io.
void add_server(const std::string& path, int server, int servers, const std::string& endpoints);

/// The address that `text` means: an address (ENDPOINT@KEYS), or the path of a connection file that
/// all servers stand in. Throws as read_connection_file; Config where a server is missing.
std::string address_from(const std::string& text);

}  // namespace hetu::ps
