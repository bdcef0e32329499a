// The GPUs of a plan, one per line, in the order of ranks.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "pipeline/planner/export_parts.h"

namespace hetu {
namespace {

// Returns true if the workers of each host follow each other in ascending order, as launchers
// number them.
bool goes_by_host(const std::vector<int>& workers, const std::vector<std::string>& hosts) {
  std::set<std::string> done;
  for (std::size_t r = 0; r < workers.size(); ++r) {
    const std::string& host = hosts[workers[r]];
    const bool same = r > 0 && host == hosts[workers[r - 1]];
    if (same && workers[r] < workers[r - 1]) return false;
    if (!same && !done.insert(host).second) return false;
  }
  return true;
}

}  // namespace

std::vector<ExportedFile> export_devices(const Exporting& e) {
  const std::vector<int> workers = workers_by_rank(e);
  std::vector<std::string> hosts = e.request.machines.hosts;
  if (hosts.empty()) hosts.assign(e.request.machines.workers(), "");
  std::string text = heading(e, "the launcher");
  text += "# The lines are ranks: worker w of pipeline d has rank w * pipelines + d.\n";
  if (!goes_by_host(workers, hosts))
    text += "# Ranks don't follow the order of hosts and GPUs: start them with a file of ranks.\n";
  for (const int worker : workers) {
    const auto gpu = std::count(hosts.begin(), hosts.begin() + worker, hosts[worker]);
    text += fmt::format("{}:{}\n", hosts[worker].empty() ? "gpu" : hosts[worker], gpu);
  }
  return {{"devices.txt", text}};
}

}  // namespace hetu
