#include "executor/job/host_memory.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/machine_memory.h"
#include "net/transport/collective.h"

namespace hetu {
namespace {

constexpr double kGiB = 1 << 30;

struct Sum {
  int workers = 0;
  std::int64_t needs = 0;
  std::int64_t machine = 0;
  int most = 0;  // the worker that needs most memory
};

}  // namespace

std::string overfull_host(const std::vector<WorkerNeed>& workers) {
  std::map<std::string, Sum> sums;
  for (int w = 0; w < static_cast<int>(workers.size()); ++w) {
    Sum& sum = sums[workers[w].host];
    if (sum.workers == 0 || workers[w].needs > workers[sum.most].needs) sum.most = w;
    ++sum.workers;
    sum.needs += workers[w].needs;
    // Workers of one host may see different limits, such as those of containers. The largest
    // applies.
    sum.machine = std::max(sum.machine, workers[w].machine);
  }
  // A machine of unknown size (0) is never reported.
  for (const WorkerNeed& worker : workers) {
    const Sum& sum = sums[worker.host];
    if (sum.machine == 0 || sum.needs <= sum.machine) continue;
    return fmt::format(
        "host {0} has {1:.1f} GiB of memory, but the plan needs {2:.1f} GiB there ({3} worker{4}; "
        "worker {6} needs most, {5:.1f} GiB); use more hosts or stages, smaller micro-batches or a "
        "method that keeps fewer activations",
        worker.host, static_cast<double>(sum.machine) / kGiB, static_cast<double>(sum.needs) / kGiB,
        sum.workers, sum.workers == 1 ? "" : "s",
        static_cast<double>(workers[sum.most].needs) / kGiB, sum.most);
  }
  return "";
}

std::vector<WorkerNeed> gather_needs(comm::Transport& transport, std::int64_t needs,
                                     comm::Tag tag) {
  const int workers = transport.workers();
  struct Said {
    std::int64_t needs;
    std::int64_t machine;
  };
  const Said mine = {needs, machine_bytes()};
  std::vector<Said> said(workers);
  const std::vector<std::size_t> bytes(workers, sizeof(Said));
  comm::all_gather_bytes(transport, comm::everyone(transport), bytes, &mine, said.data(),
                         {tag, "the memory needs of all workers"});
  std::vector<WorkerNeed> table;
  table.reserve(said.size());
  for (int w = 0; w < workers; ++w) {
    table.push_back({transport.host_of(w), said[w].needs, said[w].machine});
  }
  return table;
}

std::string to_text(const std::vector<WorkerNeed>& workers) {
  std::string text;
  for (const WorkerNeed& w : workers) text += fmt::format("{} {} {}\n", w.needs, w.machine, w.host);
  return text;
}

std::vector<WorkerNeed> needs_from(const std::string& text) {
  std::vector<WorkerNeed> workers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    WorkerNeed w;
    if (!(words >> w.needs >> w.machine >> w.host))
      fail(Code::Comm,
           "expected the memory need of a worker (bytes, bytes of the machine, host), got '{}'",
           line);
    workers.push_back(w);
  }
  return workers;
}

}  // namespace hetu
