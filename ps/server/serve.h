// A parameter server as a process: sockets around store.h. Started by heturun.
#pragma once
#include <string>

#include "net/wire/bytes.h"
#include "ps/server/store_options.h"

namespace hetu::ps {

/// Whether this build can (it has ZeroMQ).
bool can_serve_parameters();

/// How to serve.
struct ServeParameters {
  int server = 0;  ///< which one of servers this is
  int servers = 1;
  std::string endpoint;  ///< "ipc://PATH" or "tcp://ADDRESS:PORT" (PORT may be *)
  int listener_fd = -1;  ///< a listening socket of that kind to take over, or -1
  std::string server_secret;
  std::string client_key;  ///< public key of the job's workers: nobody else gets in
  int control_fd = -1;     ///< see serve_parameters; -1 for none
  double dead_after_s = kDeadAfterS;
  std::string log_folder;   ///< where to keep what is needed to go on after a kill; "": nowhere
  std::string job;          ///< whose log that is; another's is not read
  bool sync_log = false;    ///< see server/log.h: what a loss of power may take
  int report_fd = -1;       ///< see serve_parameters; -1 for none
  std::int64_t memory = 0;  ///< as StoreOptions'; 0: seven eighths of this machine's
  std::int64_t most_unread = server::kMostUnread;  ///< as StoreOptions'
};

/// Serves a job's workers until control_fd ends or, without one, until everyone who came has left
/// or died. Lines on control_fd: "worker N died: REASON". One thread, one event loop, beside
/// ZeroMQ's own.
///
/// With a log_folder it goes on from the log that one before it, of the same place in the same job,
/// has left there, and answers nobody before the log has what was said. Written to report_fd:
/// "serves", once it has added an update. The log stays; heturun removes it.
///
/// Throws Unsupported; Comm: the endpoint cannot be served; Io, as server/log.h.
void serve_parameters(const ServeParameters& options);

}  // namespace hetu::ps
