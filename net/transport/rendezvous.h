// Rendezvous: the processes of a job find each other when no launcher has connected them. Rank 0
// listens, and the others connect to it. On one host they meet at a Unix socket, where the system
// reports the owner of each process. Between hosts they meet at MASTER_ADDR:MASTER_PORT, where each
// process proves that it has the job's secret. Read by sockets.cpp and executor/job/links.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/transport/endpoint.h"

namespace hetu::comm {

/// Parameters with which a process joins its job.
struct RendezvousOptions {
  int rank = 0;
  int workers = 1;
  std::string address = "127.0.0.1";  ///< address of rank 0 (MASTER_ADDR)
  int port = 1234;                    ///< MASTER_PORT
  /// Name of the job if a launcher gave one and the whole job is on this host; otherwise "".
  std::string name;
  bool one_host = false;       ///< true if no other host belongs to the job
  std::string secret;          ///< HETU_JOB_SECRET
  double timeout_s = 300;      ///< deadline of each wait, in seconds
  WhileWaiting while_waiting;  ///< may be empty
};

/// A process of the job.
struct Member {
  std::string host;    ///< host name, as the process states it
  std::string domain;  ///< doorbell_domain()
  /// IP address of the process; "" if it shares rank 0's address, as this process reached it.
  std::string address;
  int pid = 0;
};

/// The meeting of all processes. It lasts until the links between them are open. A Rendezvous may
/// be used by one thread at a time.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  int rank() const { return options_.rank; }
  int workers() const { return options_.workers; }
  /// Returns the processes by rank.
  const std::vector<Member>& members() const { return members_; }
  /// Returns true if other hosts belong to the job.
  bool spans_hosts() const;
  /// Exchanges texts: every process passes a text and receives the texts of all, by rank. `what`
  /// names the purpose in errors. Throws Timeout or Comm, and names the processes that did not
  /// come.
  virtual std::vector<std::string> exchange(const std::string& mine, const std::string& what) = 0;
  /// Returns a key that only the processes of this job know, for their links.
  const std::string& key() const { return key_; }
  /// Returns an address for links between hosts: the one at which this process can be reached
  /// (own_end), or the one at which it reached rank 0 (far_end).
  const Address& own_end() const { return own_end_; }
  const Address& far_end() const { return far_end_; }
  /// Returns the meeting point, as text for messages.
  std::string where() const;

  /// Returns the sockets that become readable when a process comes too late. Call refuse_late()
  /// then.
  virtual std::vector<int> late() const { return {}; }
  /// Sends processes that come too late the reason why they cannot join.
  virtual void refuse_late() {}

 protected:
  explicit Rendezvous(RendezvousOptions options) : options_(std::move(options)) {}

  RendezvousOptions options_;
  std::vector<Member> members_;
  std::string key_;
  Address own_end_;
  Address far_end_;
};

/// Waits for all processes of the job (as rank 0), or for rank 0.
///
/// Throws Config if the environment is inconsistent: an unknown host name, an address of another
/// host, a port in use, or ranks that conflict. Throws Timeout and names the ranks that did not
/// come. Throws Comm if rank 0 ends, belongs to another user, or does not prove that it has the
/// secret. Throws InvalidArgument if `options.rank` is not a rank of the job.
std::unique_ptr<Rendezvous> meet(const RendezvousOptions& options);

}  // namespace hetu::comm
