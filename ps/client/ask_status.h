// Asks parameter servers how they are, without taking part in anything; and what they say as text.
// Read by `hetu ps status`.
#pragma once
#include <string>
#include <vector>

#include "ps/server/status.h"

namespace hetu::ps {

/// What a server has said, all its tables; or why it has not.
struct AskedStatus {
  std::string endpoint;
  std::string failure;  ///< "" if it has answered
  server::ServerStatus status;
};

/// Of each server of an address as heturun writes it, in their order. Throws Config: it is no
/// address; Unsupported in a build without ZeroMQ.
std::vector<AskedStatus> ask_status(const std::string& address, double timeout_s);

/// A table that servers share, put together.
struct WholeTable {
  server::TableStatus about;                ///< clocks: the least of all servers; bytes: their sum
  std::vector<std::vector<int>> waits_for;  ///< per `about.waiting`, members
  std::int64_t lag = 0;  ///< clock of the fastest connected member minus that of the slowest
};
std::vector<WholeTable> whole_tables(const std::vector<AskedStatus>& all);

/// For people; as JSON; as Prometheus reads it (text format 0.0.4).
std::string status_text(const std::vector<AskedStatus>& all);
std::string status_json(const std::vector<AskedStatus>& all);
std::string status_prometheus(const std::vector<AskedStatus>& all);

}  // namespace hetu::ps
