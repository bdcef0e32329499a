// Where a process beside the workers is reached, and the keys to it, as heturun hands them over in
// an environment variable. Read by the ZeroMQ clients of ps/.
#pragma once
#include <string>
#include <vector>

namespace hetu::ps {

/// "ENDPOINT,ENDPOINT…@KEYS", taken apart.
struct Address {
  std::vector<std::string> endpoints;
  std::string server_key;
  std::string public_key;
  std::string secret_key;
};

/// Throws Config, naming the environment variable that it is of, if `text` is none.
Address parse_address(const std::string& text, const char* variable);

/// Several of them, with ";" between, in their order. Throws as parse_address.
std::vector<Address> parse_addresses(const std::string& text, const char* variable);

/// What parse_address takes apart; `endpoints` with commas between.
std::string write_address(const std::string& endpoints, const std::string& server_key,
                          const std::string& public_key, const std::string& secret_key);

/// The first endpoint that answers; the last if none does, for ZeroMQ goes on trying. One alone is
/// taken as it is.
std::string choose_endpoint(const std::vector<std::string>& endpoints);

/// This host's own address on the way to a "tcp://" endpoint; nothing is sent. Throws Comm.
std::string own_address_towards(const std::string& endpoint);

}  // namespace hetu::ps
