// Reads the environment variables. Each variable of the table is stored by its own function. The
// variables of launchers are read together, because several launchers may have set some of them:
//
//   1. a check by heturun (HETU_CHECK)    the number of workers of the job that will start
//   2. OMPI_COMM_WORLD_SIZE               Open MPI started this process
//   3. RANK or WORLD_SIZE                 started by hand or by torchrun
//   4. SLURM_STEP_ID and SLURM_PROCID     a task of srun
//
// The first case that applies decides. Otherwise the process is alone.
#include "config/env.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "config/env_variables.h"

namespace hetu {

using variables::kMostWorkers;
using variables::parse_int;
using variables::Variable;
using variables::wrong;

namespace {

// Throws Config unless number < count, where `of` is the variable that sets the count.
void in_range(const char* name, int number, const char* of, int count) {
  if (number >= count) {
    wrong(name, std::to_string(number), fmt::format("below {} = {}", of, count));
  }
}

/// Looks up variables that belong together.
struct Set {
  const EnvLookup& lookup;

  /// Returns the value of the first of the two variables that is set; "" if neither is.
  std::string operator()(const char* name, const char* otherwise = nullptr) const {
    const char* value = lookup(name);
    if (value != nullptr && *value != '\0') return value;
    return otherwise != nullptr ? (*this)(otherwise) : "";
  }
  int number(const char* name, int low) const {
    return parse_int(name, (*this)(name), low, kMostWorkers);
  }
};

/// Returns the first host of a Slurm list such as "w[03-07,9],x".
std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const std::size_t close = std::min(list.find(']', i), list.size());
    host += list.substr(i + 1, list.find_first_of(",-]", i) - i - 1);
    i = close;
  }
  return host;
}

// Reads RANK and WORLD_SIZE, as torch.distributed sets them.
void read_ranks(const Set& set, Env& e) {
  for (const auto& [missing, there] : {std::pair("RANK", "WORLD_SIZE"), {"WORLD_SIZE", "RANK"}}) {
    if (!set(missing).empty()) continue;
    e.start_fault = fmt::format(
        "environment variable {} is set and {} is not; each worker of a job started by hand needs "
        "both, and a single process needs neither",
        there, missing);
    return;
  }
  e.workers = set.number("WORLD_SIZE", 1);
  e.worker = set.number("RANK", 0);
  in_range("RANK", e.worker, "WORLD_SIZE", e.workers);
  const char* const local = set("LOCAL_WORLD_SIZE").empty() ? "LOCAL_SIZE" : "LOCAL_WORLD_SIZE";
  e.one_host = !set(local).empty() && set.number(local, 1) == e.workers;
  if (set("TORCHELASTIC_USE_AGENT_STORE") == "True" && e.master_port < 65535) ++e.master_port;
}

// Reads the variables of a task of srun. A batch script has SLURM_PROCID too, but no step, and is a
// single process.
void read_step(const Set& set, Env& e) {
  const char* const tasks =
      set("SLURM_STEP_NUM_TASKS").empty() ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
  if (set(tasks).empty()) return;
  e.workers = set.number(tasks, 1);
  e.worker = set.number("SLURM_PROCID", 0);
  in_range("SLURM_PROCID", e.worker, tasks, e.workers);
  const std::string step = set("SLURM_JOB_ID", "SLURM_JOBID") + "." + set("SLURM_STEP_ID");
  if (set("SLURM_STEP_NUM_NODES", "SLURM_NNODES") == "1") {
    e.one_host = true;
    e.launch_name = "slurm-" + step;
    return;
  }
  if (set("MASTER_ADDR").empty())
    e.master_address = first_host(set("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"));
  if (set("MASTER_PORT").empty()) {
    std::uint32_t hash = 2166136261U;  // FNV-1a
    for (const char c : step) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619U;
    e.master_port = 10000 + static_cast<int>(hash % 20000);
  }
}

// Determines the launcher of this process if the process is one of several workers and Open MPI did
// not start it.
void read_start(const Set& set, Env& e) {
  if (e.check) return;
  if (!set("OMPI_COMM_WORLD_SIZE").empty()) {
    e.launch_name = set("PMIX_NAMESPACE", "HETU_JOB");
    return;
  }
  if (!set("RANK").empty() || !set("WORLD_SIZE").empty()) {
    read_ranks(set, e);
  } else if (!set("SLURM_STEP_ID").empty() && !set("SLURM_PROCID").empty()) {
    read_step(set, e);
  }
  e.by_hand = e.workers > 1;
}

}  // namespace

Env read_env(const EnvLookup& lookup) {
  Env result;
  for (const Variable& variable : variables::all()) {
    if (variable.store == nullptr) continue;
    const char* value = lookup(variable.row.name.c_str());
    if (value != nullptr && *value != '\0') variable.store(result, variable.row.name, value);
  }
  in_range("OMPI_COMM_WORLD_RANK", result.worker, "OMPI_COMM_WORLD_SIZE", result.workers);
  in_range("OMPI_COMM_WORLD_LOCAL_RANK", result.local_worker, "OMPI_COMM_WORLD_LOCAL_SIZE",
           result.local_workers);
  read_start(Set{lookup}, result);
  if (result.pipelines > 1 && !result.check) {
    in_range("HETU_FIRST_WORKER", result.first_worker, "the number of workers in all pipelines",
             result.workers * result.pipelines);
    result.worker += result.first_worker;
    result.workers *= result.pipelines;
  }
  // Open MPI's counts cover one pipeline only, and a check runs before the job has started. The
  // largest count of a host serves in both cases.
  if (result.pipelines > 1 || result.check) {
    for (const HostWorkers& host : result.hosts) {
      result.local_workers = std::max(result.local_workers, host.workers);
    }
  }
  return result;
}

const Env& env() {
  static const Env instance = [] {
    Env read = read_env([](const char* name) { return std::getenv(name); });
    set_log_level(read.log_level);
    std::vector<std::string> environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      environment.emplace_back(*entry);
    }
    for (const std::string& name : unknown_variables(environment)) {
      log(Level::Warning, "environment variable {} is set, but Hetu reads no variable of that name",
          name);
    }
    return read;
  }();
  return instance;
}

std::vector<EnvRow> env_table() {
  std::vector<EnvRow> rows;
  for (const Variable& variable : variables::all()) rows.push_back(variable.row);
  return rows;
}

std::string env_table_text() {
  std::string text = "| variable | default | set by | meaning |\n|---|---|---|---|\n";
  for (const EnvRow& row : env_table()) {
    text +=
        fmt::format("| `{}` | {} | {} | {} |\n", row.name, row.fallback, row.set_by, row.meaning);
  }
  return text;
}

std::vector<std::string> unknown_variables(const std::vector<std::string>& environment) {
  std::set<std::string> known;
  for (const EnvRow& row : env_table()) known.insert(row.name);
  std::vector<std::string> unknown;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (name.rfind("HETU_", 0) == 0 && known.count(name) == 0) unknown.push_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace hetu
