#include "executor/job/links.h"

#include <algorithm>

#include "base/error.h"
#include "net/transport/connect.h"
#include "net/transport/inproc.h"
#include "net/transport/rendezvous.h"

namespace hetu {
namespace {

constexpr const char* kSockets = "sockets";

// Start variables in the environment are checked only by processes that join a job.
void check_start() {
  if (!env().start_fault.empty()) fail(Code::Config, "{}", env().start_fault);
}

std::string transport_name() {
  const std::string& name = env().transport;
  if (name == "auto") return env().by_hand ? kSockets : "mpi";
  if (env().by_hand && name != kSockets)
    fail(Code::Config,
         "environment variable HETU_TRANSPORT: got '{}', which needs heturun; for a job started by "
         "hand (RANK, WORLD_SIZE) or by srun, set it to {} or unset it",
         name, kSockets);
  return name;
}

std::shared_ptr<comm::Rendezvous> meet_others(const WhileWaiting& while_waiting) {
  const Env& e = env();
  if (!e.by_hand && (e.hosts.size() > 1 || e.launch_name.empty()))
    fail(Code::Unsupported,
         "HETU_TRANSPORT={} works only for jobs of heturun on one host and for jobs started by "
         "hand; unset it",
         kSockets);
  comm::RendezvousOptions options;
  options.workers = e.workers / e.pipelines;
  options.rank = e.worker - e.first_worker;
  options.address = e.master_address;
  options.port = e.master_port;
  options.name = e.launch_name;
  options.one_host = e.one_host;
  options.secret = e.job_secret;
  options.timeout_s = e.timeout_s;
  options.while_waiting = while_waiting;
  return comm::meet(options);
}

// Meets the other workers once per process. Later calls use the same rendezvous.
std::shared_ptr<comm::Rendezvous> meeting(const WhileWaiting& while_waiting) {
  static const std::shared_ptr<comm::Rendezvous> met = meet_others(while_waiting);
  return met;
}

}  // namespace

StartedWorkers started_workers(const WhileWaiting& while_waiting) {
  check_start();
  if (!env().by_hand) return {env().hosts, env().local_workers};
  const auto met = meeting(while_waiting);
  const auto& members = met->members();
  StartedWorkers started;
  started.local_workers = 0;
  for (const comm::Member& member : members) {
    if (started.hosts.empty() || started.hosts.back().host != member.host)
      started.hosts.push_back({member.host, 0});
    ++started.hosts.back().workers;
    if (member.domain == members[met->rank()].domain) ++started.local_workers;
  }
  return started;
}

comm::Options link_options(int number, const WhileWaiting& while_waiting) {
  comm::Options options;
  options.timeout_s = env().timeout_s;
  options.number = number;
  options.progress_fd = env().progress_fd;
  options.one_host = env().local_workers == env().workers;
  options.while_waiting = while_waiting;
  if (transport_name() == kSockets) options.met = meeting(while_waiting);
  return options;
}

std::unique_ptr<comm::Transport> open_links(int number, const WhileWaiting& while_waiting) {
  check_start();
  if (env().workers <= 1) return std::move(comm::make_inproc(1, {.timeout_s = env().timeout_s})[0]);
  const comm::Options options = link_options(number, while_waiting);
  return comm::connect(transport_name(), options);
}

}  // namespace hetu
