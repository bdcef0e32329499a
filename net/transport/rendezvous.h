// How the processes of a job find each other that nobody started together: rank 0 listens, the
// others come. On one host they meet at a Unix socket, where the system says whose a process is;
// between hosts at MASTER_ADDR:MASTER_PORT, where each proves that it has the job's secret. Read by
// sockets.cpp and executor/job/links.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/transport/endpoint.h"

namespace hetu::comm {

/// What a process knows of its job when it starts.
struct RendezvousPlace {
  int rank = 0;
  int workers = 1;
  std::string address = "127.0.0.1";  ///< of rank 0 (MASTER_ADDR)
  int port = 1234;                    ///< MASTER_PORT
  std::string name;  ///< of the job where its launcher knows one, all of it on this host; else ""
  bool one_host = false;  ///< no other host belongs to the job
  std::string secret;     ///< HETU_JOB_SECRET
  double timeout_s = 300;
  WhileWaiting while_waiting;  ///< may be empty
};

/// A process of the job.
struct Member {
  std::string host;     ///< as it names itself
  std::string domain;   ///< doorbell_domain()
  std::string address;  ///< IP address where it is reached; "": where this process reached rank 0
  int pid = 0;
};

/// The meeting of all processes, which lasts until the links between them stand. Not for several
/// threads at once.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  int rank() const { return place_.rank; }
  int workers() const { return place_.workers; }
  /// By rank.
  const std::vector<Member>& members() const { return members_; }
  /// Whether other hosts belong to the job.
  bool spans_hosts() const;
  /// Every process gives a text and gets those of all, by rank. Throws Timeout or Comm, naming the
  /// processes that did not come; `what` they came to.
  virtual std::vector<std::string> exchange(const std::string& mine, const std::string& what) = 0;
  /// What only the processes of this job know, for their links.
  const std::string& key() const { return key_; }
  /// For links between hosts: the address at which this process is reached, and that at which it
  /// reached rank 0.
  const Address& own_end() const { return own_end_; }
  const Address& far_end() const { return far_end_; }
  /// Where the processes meet, for people.
  std::string where() const;

  /// Sockets that have something to say when a process comes too late; then call refuse_late().
  virtual std::vector<int> late() const { return {}; }
  virtual void refuse_late() {}

 protected:
  explicit Rendezvous(RendezvousPlace place) : place_(std::move(place)) {}

  RendezvousPlace place_;
  std::vector<Member> members_;
  std::string key_;
  Address own_end_;
  Address far_end_;
};

/// Waits for all processes of the job, or for rank 0. Throws Config where the environment cannot be
/// right (a name that nobody knows, an address of another host, a taken port, ranks that do not fit
/// each other), Timeout naming the ranks that did not come, Comm.
std::unique_ptr<Rendezvous> meet(const RendezvousPlace& place);

}  // namespace hetu::comm
