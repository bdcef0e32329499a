#include "config/env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

#include "graph/base/error.h"

namespace hetu {
namespace {

[[noreturn]] void wrong(const std::string& name, const std::string& value,
                        const std::string& right) {
  fail(Code::Config, "environment variable {}: got '{}'; it must be {}", name, value, right);
}

int parse_int(const std::string& name, const std::string& value, int low, int high) {
  int number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < low || number > high) {
    wrong(name, value, fmt::format("a whole number from {} to {}", low, high));
  }
  return number;
}

double parse_seconds(const std::string& name, const std::string& value) {
  char* stop = nullptr;
  const double number = std::strtod(value.c_str(), &stop);
  if (stop != value.c_str() + value.size() || !std::isfinite(number) || number <= 0 ||
      number > 1e6) {
    wrong(name, value, "a number of seconds above 0 and at most 1000000, e.g. 300");
  }
  return number;
}

template <class Enum>
struct Choice {
  const char* name;
  Enum value;
};

template <class Enum, std::size_t n>
Enum parse_choice(const std::string& name, const std::string& value,
                  const Choice<Enum> (&choices)[n]) {
  std::string known;
  for (const Choice<Enum>& choice : choices) {
    if (value == choice.name) return choice.value;
    known += (known.empty() ? "" : ", ") + std::string(choice.name);
  }
  wrong(name, value, "one of " + known);
}

constexpr Choice<Level> kLevels[] = {{"debug", Level::Debug},
                                     {"info", Level::Info},
                                     {"warning", Level::Warning},
                                     {"error", Level::Error}};
constexpr Choice<KernelChoice> kKernels[] = {{"auto", KernelChoice::Best},
                                             {"reference", KernelChoice::Reference}};

constexpr int kMostWorkers = 1 << 20;

/// A row of documentation with the function that stores a value that is set; nullptr: not read.
struct Variable {
  EnvRow row;
  void (*store)(Env& env, const std::string& name, const std::string& value);
};

void append(std::vector<Variable>& to, std::vector<Variable> rows) {
  to.insert(to.end(), rows.begin(), rows.end());
}

std::vector<Variable> user_variables() {
  return {
      {{"HETU_TIMEOUT", "300", "user",
        "Deadline of every blocking call between processes, in seconds."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.timeout_s = parse_seconds(n, v);
       }},
      {{"HETU_LOG_LEVEL", "info", "user", "Least level written: debug, info, warning or error."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.log_level = parse_choice(n, v, kLevels);
       }},
      {{"HETU_KERNELS", "auto", "user",
        "auto takes the fastest kernel that fits; reference takes the plain one."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.kernels = parse_choice(n, v, kKernels);
       }},
      {{"HETU_DEVICE", "auto", "user",
        "What workers compute on, as --device, which wins unless it is auto."},
       [](Env& e, const std::string&, const std::string& v) { e.device = v; }},
      {{"HETU_DEVICES", "", "user", "Name of the device list, as --devices, which wins."},
       [](Env& e, const std::string&, const std::string& v) { e.devices = v; }},
      {{"HETU_TRANSPORT", "auto", "user",
        "What carries messages between workers, a row of executor/comm/connect.cpp; auto: mpi "
        "where Open MPI has started them, else sockets."},
       [](Env& e, const std::string&, const std::string& v) { e.transport = v; }},
      {{"HETU_THREADS", "0", "user",
        "Compute threads per worker, as --threads, which wins; 0: cores / workers of the host."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.threads = parse_int(n, v, 0, 4096);
       }},
      {{"IMAGENET_TRAIN_ROOT", "", "user",
        "Folder of ImageNet's training images, one sub-folder per class, where --data is not "
        "given."},
       [](Env& e, const std::string&, const std::string& v) { e.imagenet_train_root = v; }},
      {{"IMAGENET_VAL_ROOT", "", "user",
        "Folder of ImageNet's validation images, laid out as the training ones."},
       [](Env& e, const std::string&, const std::string& v) { e.imagenet_val_root = v; }},
  };
}

// A job whose processes nobody starts together: names of torch.distributed and of Slurm.
std::vector<Variable> by_hand_variables() {
  return {
      {{"RANK", "", "user, torchrun",
        "Number of this worker, in a job started by hand; not read under Open MPI."},
       nullptr},
      {{"WORLD_SIZE", "", "user, torchrun", "Workers of a job started by hand."}, nullptr},
      {{"MASTER_ADDR", "127.0.0.1", "user, torchrun",
        "Host where RANK 0 of a job started by hand is; under srun the step's first host."},
       [](Env& e, const std::string&, const std::string& v) { e.master_address = v; }},
      {{"MASTER_PORT", "1234", "user, torchrun",
        "Port where the workers of a job started by hand meet; under srun one that follows from "
        "job and step."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.master_port = parse_int(n, v, 1, 65535);
       }},
      {{"LOCAL_WORLD_SIZE, LOCAL_SIZE", "", "user, torchrun",
        "Workers of a job started by hand on this host; where they are all, it opens no port."},
       nullptr},
      {{"TORCHELASTIC_USE_AGENT_STORE", "", "torchrun",
        "True: torchrun itself holds MASTER_PORT, and the workers meet at the port above it."},
       nullptr},
      {{"LOCAL_RANK", "", "user, torchrun",
        "Not needed: workers of a host are counted when they meet."},
       nullptr},
      {{"HETU_JOB_SECRET", "", "user",
        "What proves that a process on another host belongs to a job started by hand, at least 16 "
        "characters, the same for all; without it .config/hetu/job_secret of the home folder."},
       [](Env& e, const std::string&, const std::string& v) { e.job_secret = v; }},
      {{"SLURM_PROCID, SLURM_NTASKS", "", "Slurm",
        "In a step of srun (SLURM_STEP_ID, SLURM_STEP_NUM_TASKS): number of this worker, and how "
        "many there are."},
       nullptr},
      {{"SLURM_LOCALID, SLURM_NTASKS_PER_NODE", "", "Slurm",
        "Not needed: workers of a host are counted when they meet."},
       nullptr},
      {{"PMIX_NAMESPACE", "", "Open MPI",
        "Name of the job, under which its workers meet where HETU_TRANSPORT is sockets."},
       nullptr},
  };
}

// Processes beside the workers.
std::vector<Variable> service_variables() {
  return {
      {{"HETU_COORDINATOR", "", "heturun",
        "Where the job's coordinator of groups listens, and the keys to it: a secret of the job."},
       [](Env& e, const std::string&, const std::string& v) { e.coordinator = v; }},
      {{"HETU_SERVERS", "", "heturun",
        "Where the job's parameter servers listen, in their order, and the keys to them: a secret "
        "of "
        "the job."},
       [](Env& e, const std::string&, const std::string& v) { e.servers = v; }},
  };
}

std::vector<Variable> launcher_variables() {
  return {
      {{"HETU_JOB", "", "heturun", "Random name of the job; not set without heturun."},
       [](Env& e, const std::string&, const std::string& v) { e.job = v; }},
      {{"HETU_HOSTS", "", "heturun",
        "Hosts and their workers, w0:8,w1:8; workers are numbered in this order."},
       [](Env& e, const std::string& n, const std::string& v) { e.hosts = parse_hosts(v, n); }},
      {{"HETU_PROGRESS_FD", "", "heturun",
        "File descriptor that takes progress records, one JSON object per line."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.progress_fd = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"HETU_FIRST_WORKER", "0", "heturun",
        "Number of the first worker of this pipeline, where each is a job of its own under Open "
        "MPI."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.first_worker = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"HETU_PIPELINES", "1", "heturun",
        "How many pipelines are jobs of their own under Open MPI (--on-failure shrink); 1: none."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.pipelines = parse_int(n, v, 1, kMostWorkers);
       }},
      {{"HETU_CHECK", "", "heturun",
        "Workers of the job that is about to start: this process looks whether it can train as its "
        "options say, and ends."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.check = true;
         e.workers = parse_int(n, v, 1, kMostWorkers);
       }},
      {{"HETU_CONTROL_TOKEN", "", "heturun",
        "Secret with which a worker's guard proves itself to heturun; the worker never sees it."},
       nullptr},
      {{"HETU_LD_PRELOAD", "", "heturun",
        "The caller's LD_PRELOAD, which the guard gives back to the worker: mpirun has a library "
        "of "
        "Hetu's there, which closes its ports to others."},
       nullptr},
      {{"HETU_PATH", "", "heturun",
        "The caller's PATH, which the guard gives back to the worker: mpirun puts its own folder "
        "first."},
       nullptr},
      {{"OMPI_COMM_WORLD_RANK", "0", "Open MPI", "Number of this worker."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.worker = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"OMPI_COMM_WORLD_SIZE", "1", "Open MPI", "Workers of the job."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.workers = parse_int(n, v, 1, kMostWorkers);
       }},
      {{"OMPI_COMM_WORLD_LOCAL_RANK", "0", "Open MPI", "Number of this worker on its host."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.local_worker = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1", "Open MPI", "Workers of the job on this host."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.local_workers = parse_int(n, v, 1, kMostWorkers);
       }},
  };
}

std::vector<Variable> other_variables() {
  return {
      {{"HETU_SOURCE_DIR", "", "tests", "Root of the source tree."},
       [](Env& e, const std::string&, const std::string& v) { e.source_dir = v; }},
      {{"HETU_BUILD_DIR", "", "tests", "Root of the build tree."},
       [](Env& e, const std::string&, const std::string& v) { e.build_dir = v; }},
      {{"SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE", "", "Slurm",
        "Hosts of an allocation and the workers of each, 2(x3),1; read by heturun without -c and "
        "-w."},
       nullptr},
      {{"DMLC_*, PS_*", "", "reserved",
        "SD-PIPE's names of the parameter server; handed on to workers, not read."},
       nullptr},
  };
}

std::vector<Variable> variables() {
  std::vector<Variable> all;
  append(all, user_variables());
  append(all, launcher_variables());
  append(all, by_hand_variables());
  append(all, service_variables());
  append(all, other_variables());
  return all;
}

void in_range(const char* name, int number, const char* of, int count) {
  if (number >= count) {
    wrong(name, std::to_string(number), fmt::format("below {} = {}", of, count));
  }
}

/// Variables that mean something together.
struct Set {
  const EnvLookup& lookup;

  /// The first of these that is set; "" if none is.
  std::string operator()(const char* name, const char* otherwise = nullptr) const {
    const char* value = lookup(name);
    if (value != nullptr && *value != '\0') return value;
    return otherwise != nullptr ? (*this)(otherwise) : "";
  }
  int number(const char* name, int low) const {
    return parse_int(name, (*this)(name), low, kMostWorkers);
  }
};

/// The first host of Slurm's "w[03-07,9],x".
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

// RANK and WORLD_SIZE, as torch.distributed has them.
void read_ranks(const Set& set, Env& e) {
  for (const auto& [missing, there] : {std::pair("RANK", "WORLD_SIZE"), {"WORLD_SIZE", "RANK"}}) {
    if (!set(missing).empty()) continue;
    e.start_fault = fmt::format(
        "environment variable {} is set and {} is not; a worker of a job started by hand needs "
        "both, one process alone neither",
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

// A task of srun. A batch script has SLURM_PROCID too, but no step, and is one process.
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

// Who started this process as one of several workers, where Open MPI did not.
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
  for (const Variable& variable : variables()) {
    if (variable.store == nullptr) continue;
    const char* value = lookup(variable.row.name.c_str());
    if (value != nullptr && *value != '\0') variable.store(result, variable.row.name, value);
  }
  in_range("OMPI_COMM_WORLD_RANK", result.worker, "OMPI_COMM_WORLD_SIZE", result.workers);
  in_range("OMPI_COMM_WORLD_LOCAL_RANK", result.local_worker, "OMPI_COMM_WORLD_LOCAL_SIZE",
           result.local_workers);
  read_start(Set{lookup}, result);
  if (result.pipelines > 1) {
    in_range("HETU_FIRST_WORKER", result.first_worker, "workers of all pipelines",
             result.workers * result.pipelines);
    result.worker += result.first_worker;
    result.workers *= result.pipelines;
  }
  // Open MPI counts the workers of one pipeline, and none of a job that is to come.
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
  for (const Variable& variable : variables()) rows.push_back(variable.row);
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

std::vector<HostWorkers> parse_hosts(const std::string& text, const std::string& origin) {
  std::vector<HostWorkers> hosts;
  std::set<std::string> seen;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string entry = text.substr(start, comma - start);
    const std::size_t colon = entry.rfind(':');
    if (colon == std::string::npos || colon == 0 || !seen.insert(entry.substr(0, colon)).second) {
      wrong(origin, text, "different hosts with their workers, e.g. w0:8,w1:8");
    }
    hosts.push_back(
        {entry.substr(0, colon), parse_int(origin, entry.substr(colon + 1), 0, kMostWorkers)});
    start = comma + 1;
  }
  return hosts;
}

}  // namespace hetu
