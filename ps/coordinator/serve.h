// The coordinator as a process: sockets around coordinator.h. Started by heturun.
#pragma once
#include <string>

#include "net/keys/keys.h"
#include "ps/coordinator/messages.h"

namespace hetu::ps {

/// Whether this build can (it has ZeroMQ).
bool can_serve_coordinator();

/// What connect_coordinator takes: "ENDPOINT,ENDPOINT…@KEYS"; the first endpoint that answers is
/// taken. Whoever has it gets in.
std::string coordinator_address(const std::string& endpoints, const std::string& server_public,
                                const curve::KeyPair& worker);

/// How to serve.
struct ServeOptions {
  std::string endpoint;  ///< "ipc://PATH" or "tcp://ADDRESS:PORT" (PORT may be *)
  int listener_fd = -1;  ///< a listening socket of that kind to take over, or -1
  std::string server_secret;
  std::string client_key;  ///< public key of the job's workers: nobody else gets in
  int control_fd = -1;     ///< see serve_coordinator; -1 for none
  int report_fd = -1;      ///< likewise
  double dead_after_s = kDeadAfterS;
};

/// Serves a job's trainings, one after the other, for as long as somebody wants the next one before
/// the last worker has left: returns when every worker has left and nobody has come again, or when
/// control_fd ends. Lines on control_fd: "worker N died: REASON", "pipeline N died: REASON".
/// Written to report_fd: "pipeline N died: REASON" of each that the job goes on without. One
/// thread, one event loop. Throws Unsupported, Comm (the endpoint cannot be served), and what ended
/// the job.
void serve_coordinator(const ServeOptions& options);

}  // namespace hetu::ps
