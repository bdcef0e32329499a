// A parameter server process: sockets around store.h. Started by heturun.
#pragma once
#include <string>

#include "net/wire/bytes.h"
#include "ps/server/store_options.h"

namespace hetu::ps {

/// Returns true if this build can serve parameters, which requires ZeroMQ with encryption.
bool can_serve_parameters();

/// Options of serve_parameters().
struct ServeParameters {
  int server = 0;  ///< number of this server, from 0
  int servers = 1;
  std::string endpoint;  ///< "ipc://PATH" or "tcp://ADDRESS:PORT" (PORT may be *)
  int listener_fd = -1;  ///< an already listening socket for the endpoint, or -1
  std::string server_secret;
  std::string client_key;  ///< public key of the job's workers; other clients are refused
  int control_fd = -1;     ///< file of control lines, see serve_parameters; -1 for none
  double dead_after_s = kDeadAfterS;
  std::string log_folder;   ///< folder of the log for restarts; "": no log
  std::string job;          ///< id of the job that owns the log; a log of another job is refused
  bool sync_log = false;    ///< see LogOptions::sync: protection against power loss
  int report_fd = -1;       ///< file for reports, see serve_parameters; -1 for none
  std::int64_t memory = 0;  ///< StoreOptions::memory; 0: seven eighths of this machine's memory
  std::int64_t most_unread = server::kMostUnread;  ///< StoreOptions::most_unread
};

/// Serves a job's workers until control_fd ends. Without control_fd it serves until every worker
/// that joined has left or died. A line on control_fd has the form "worker N died: REASON". One
/// thread runs one event loop, besides ZeroMQ's own threads.
///
/// With a log_folder, the server continues from the log that an earlier process left for the same
/// server number of the same job. It answers a message only after the log holds it. It writes
/// "serves" to report_fd once it has applied an update. It keeps the log, which heturun removes.
///
/// Throws Unsupported; Comm if the endpoint can't be served; Io as in server/log.h.
void serve_parameters(const ServeParameters& options);

}  // namespace hetu::ps
