// The coordinator process: sockets around coordinator.h. Started by heturun.
#pragma once
#include <string>

#include "net/keys/keys.h"
#include "ps/coordinator/messages.h"

namespace hetu::ps {

/// Returns true if this build can serve a coordinator, which requires ZeroMQ with encryption.
bool can_serve_coordinator();

/// Returns the address for connect_coordinator: "ENDPOINT,ENDPOINT…@KEYS". Clients use the first
/// endpoint that answers. Anyone who has the address can connect.
std::string coordinator_address(const std::string& endpoints, const std::string& server_public,
                                const curve::KeyPair& worker);

/// Options of serve_coordinator().
struct ServeOptions {
  std::string endpoint;  ///< "ipc://PATH" or "tcp://ADDRESS:PORT" (PORT may be *)
  int listener_fd = -1;  ///< an already listening socket for the endpoint, or -1
  std::string server_secret;
  std::string client_key;  ///< public key of the job's workers; other clients are refused
  int control_fd = -1;     ///< file of control lines, see serve_coordinator; -1 for none
  int report_fd = -1;      ///< file for reports, likewise
  double dead_after_s = kDeadAfterS;
};

/// Serves a job's trainings, one after the other. Returns when every worker has left and none has
/// asked for another training before that, or when control_fd ends. Lines on control_fd have the
/// form "worker N died: REASON" or "pipeline N died: REASON". For each pipeline that the job
/// continues without, it writes "pipeline N died: REASON" to report_fd. One thread runs one event
/// loop. Throws Unsupported, Comm (the endpoint can't be served), and the error that ended the job.
void serve_coordinator(const ServeOptions& options);

}  // namespace hetu::ps
