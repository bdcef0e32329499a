// Requests for the status of parameter servers, without joining their job, and reports of the
// answers. Read by `hetu ps status`.
#pragma once
#include <string>
#include <vector>

#include "ps/server/status.h"

namespace hetu::ps {

/// The status of a server with all its tables, or the reason why it has not answered.
struct AskedStatus {
  std::string endpoint;
  std::string failure;  ///< "" if the server has answered
  server::ServerStatus status;
};

/// Asks each server of an address, in the format that heturun writes, and returns the answers in
/// the same order. Throws Config for an invalid address, and Unsupported in a build without ZeroMQ.
std::vector<AskedStatus> ask_status(const std::string& address, double timeout_s);

/// A table that servers share, combined from their answers.
struct WholeTable {
  server::TableStatus about;                ///< clocks: smallest of all servers; bytes: sum
  std::vector<std::vector<int>> waits_for;  ///< per entry of about.waiting: members
  std::int64_t lag = 0;  ///< clock of the fastest connected member minus the clock of the slowest
};
/// Combines the tables of all servers that answered, by name.
std::vector<WholeTable> whole_tables(const std::vector<AskedStatus>& all);

/// Formats the status for people, as JSON, and in Prometheus' text format 0.0.4.
std::string status_text(const std::vector<AskedStatus>& all);
std::string status_json(const std::vector<AskedStatus>& all);
std::string status_prometheus(const std::vector<AskedStatus>& all);

}  // namespace hetu::ps
