// Addresses of the coordinator and of parameter servers, with the keys for connecting to them.
// heturun passes them in environment variables. Read by the ZeroMQ clients of ps/.
#pragma once
#include <string>
#include <vector>

namespace hetu::ps {

/// The parts of an address "ENDPOINT,ENDPOINT…@KEYS". The keys have 64 hexadecimal digits each.
struct Address {
  std::vector<std::string> endpoints;
  std::string server_key;
  std::string public_key;
  std::string secret_key;
};

/// Parses an address. Throws Config if `text` is not an address, and names the environment variable
/// `variable` that it came from.
Address parse_address(const std::string& text, const char* variable);

/// Parses addresses separated by ";", and keeps their order. Throws as parse_address does.
std::vector<Address> parse_addresses(const std::string& text, const char* variable);

/// Returns an address in the form that parse_address reads. `endpoints` are separated by commas.
std::string write_address(const std::string& endpoints, const std::string& server_key,
                          const std::string& public_key, const std::string& secret_key);

/// Returns the first endpoint that answers, or the last one if none does, because ZeroMQ keeps
/// trying to connect. A single endpoint is returned without a check.
std::string choose_endpoint(const std::vector<std::string>& endpoints);

/// Returns the address of this host from which a "tcp://" endpoint is reached. Sends nothing.
/// Throws Comm if there is no route.
std::string own_address_towards(const std::string& endpoint);

}  // namespace hetu::ps
