#include "config/env_variables.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/processor.h"

namespace hetu::variables {

void wrong(const std::string& name, const std::string& value, const std::string& right) {
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

namespace {

double parse_seconds(const std::string& name, const std::string& value) {
  char* stop = nullptr;
  const double number = std::strtod(value.c_str(), &stop);
  if (stop != value.c_str() + value.size() || !std::isfinite(number) || number <= 0 ||
      number > 1e6) {
    wrong(name, value, "a number of seconds above 0 and at most 1000000, e.g. 300");
  }
  return number;
}

double parse_pause(const std::string& name, const std::string& value) {
  char* stop = nullptr;
  const double number = std::strtod(value.c_str(), &stop);
  if (stop != value.c_str() + value.size() || !std::isfinite(number) || number < 0) {
    wrong(name, value, "a number of seconds of at least 0, e.g. 0.1 (see --hetero)");
  }
  return number;
}

// Removes the brackets of an IPv6 address such as "[::1]", as URLs write it.
std::string without_brackets(const std::string& address) {
  const bool has_them = address.size() > 2 && address.front() == '[' && address.back() == ']';
  return has_them ? address.substr(1, address.size() - 2) : address;
}

// Parses hosts such as "w0:8,w1:8". `origin` is named in errors.
std::vector<HostWorkers> parse_hosts(const std::string& text, const std::string& origin) {
  std::vector<HostWorkers> hosts;
  std::set<std::string> seen;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string entry = text.substr(start, comma - start);
    const std::size_t colon = entry.rfind(':');
    if (colon == std::string::npos || colon == 0 || !seen.insert(entry.substr(0, colon)).second) {
      wrong(origin, text,
            "a list of different hosts with their numbers of workers, e.g. w0:8,w1:8");
    }
    hosts.push_back(
        {entry.substr(0, colon), parse_int(origin, entry.substr(colon + 1), 0, kMostWorkers)});
    start = comma + 1;
  }
  return hosts;
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
      {{"HETU_LOG_LEVEL", "info", "user",
        "Lowest level that is logged: debug, info, warning or "
        "error."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.log_level = parse_choice(n, v, kLevels);
       }},
      {{"HETU_KERNELS", "auto", "user",
        "auto uses the fastest kernel that applies; reference uses the reference kernel."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.kernels = parse_choice(n, v, kKernels);
       }},
      {{"HETU_ISA", "", "user",
        "Instruction set of the CPU's kernels and of oneDNN: native, x86-64, avx2, avx512 or "
        "avx512-bf16. It is chosen when Hetu is built (`HETU_ISA=avx2 ./run install`); a program "
        "rejects any value other than its build's."},
       [](Env&, const std::string& n, const std::string& v) {
         const std::string& built = compiled_isa().name;
         if (v != built)
           wrong(n, v,
                 fmt::format("{}, which this build was compiled for, or unset. To change it: "
                             "HETU_ISA={} ./run install",
                             built, v));
       }},
      {{"HETU_FAULT", "", "user",
        "Faults that happen on purpose in a job of heturun --elastic, such as "
        "worker=2,step=5,kind=kill (docs/elastic.md)."},
       nullptr},
      {{"HETU_RUNS", "runs", "user",
        "Folder in which heturun makes the run folder of each job; none: no job has one. --run-dir "
        "takes precedence."},
       nullptr},
      {{"HETU_DEVICE", "auto", "user",
        "Device that workers compute on. --device takes precedence unless it is auto."},
       [](Env& e, const std::string&, const std::string& v) { e.device = v; }},
      {{"HETU_DEVICES", "", "user", "Name of the device list. --devices takes precedence."},
       [](Env& e, const std::string&, const std::string& v) { e.devices = v; }},
      {{"HETU_TRANSPORT", "auto", "user",
        "Transport of messages between workers: mpi or sockets. auto uses mpi if Open MPI started "
        "the workers, and sockets otherwise."},
       [](Env& e, const std::string&, const std::string& v) { e.transport = v; }},
      {{"HETU_NCCL", "libnccl.so.2", "user",
        "NCCL library for --gpu-messages: a path, or a name that the dynamic loader searches for."},
       [](Env& e, const std::string&, const std::string& v) { e.nccl = v; }},
      {{"HETU_THREADS", "0", "user",
        "Compute threads per worker. --threads takes precedence. 0: cores of the host / workers on "
        "it."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.threads = parse_int(n, v, 0, 4096);
       }},
      {{"IMAGENET_TRAIN_ROOT", "", "user",
        "Folder of ImageNet's training images with one subfolder per class, used if --data is not "
        "given."},
       [](Env& e, const std::string&, const std::string& v) { e.imagenet_train_root = v; }},
      {{"IMAGENET_VAL_ROOT", "", "user",
        "Folder of ImageNet's validation images, with the same layout as the training images."},
       [](Env& e, const std::string&, const std::string& v) { e.imagenet_val_root = v; }},
      {{"DEBUG_HETERO", "0", "user",
        "SD-PIPE's name for --hetero, in seconds; used if that option is not given."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.debug_hetero = parse_pause(n, v);
       }},
  };
}

// Variables of a job whose processes are not started together. The names are those of
// torch.distributed and Slurm.
std::vector<Variable> by_hand_variables() {
  return {
      {{"RANK", "", "user, torchrun",
        "Number of this worker in a job started by hand. Not read under Open MPI."},
       nullptr},
      {{"WORLD_SIZE", "", "user, torchrun", "Number of workers in a job started by hand."},
       nullptr},
      {{"MASTER_ADDR", "127.0.0.1", "user, torchrun",
        "Host that runs RANK 0 of a job started by hand. Default under srun: the step's first "
        "host."},
       [](Env& e, const std::string&, const std::string& v) {
         e.master_address = without_brackets(v);
       }},
      {{"MASTER_PORT", "1234", "user, torchrun",
        "Port at which the workers of a job started by hand meet. Default under srun: a port "
        "derived from the ids of job and step."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.master_port = parse_int(n, v, 1, 65535);
       }},
      {{"LOCAL_WORLD_SIZE, LOCAL_SIZE", "", "user, torchrun",
        "Number of workers on this host, in a job started by hand. If all workers are on this "
        "host, the job opens no port."},
       nullptr},
      {{"TORCHELASTIC_USE_AGENT_STORE", "", "torchrun",
        "True: torchrun itself listens at MASTER_PORT, and the workers meet at the next port."},
       nullptr},
      {{"LOCAL_RANK", "", "user, torchrun",
        "Not needed: the workers on a host are counted when they meet."},
       nullptr},
      {{"HETU_JOB_SECRET", "", "user",
        "Secret that proves that a process on another host belongs to a job started by hand: at "
        "least 16 characters, the same in all processes. Default: the text of "
        "~/.config/hetu/job_secret."},
       [](Env& e, const std::string&, const std::string& v) { e.job_secret = v; }},
      {{"SLURM_PROCID, SLURM_NTASKS", "", "Slurm",
        "In a step of srun (SLURM_STEP_ID, SLURM_STEP_NUM_TASKS): the number of this worker, and "
        "the number of workers."},
       nullptr},
      {{"SLURM_LOCALID, SLURM_NTASKS_PER_NODE", "", "Slurm",
        "Not needed: the workers on a host are counted when they meet."},
       nullptr},
      {{"PMIX_NAMESPACE", "", "Open MPI",
        "Name of the job, under which its workers meet if HETU_TRANSPORT is sockets."},
       nullptr},
  };
}

// Variables of processes other than workers.
std::vector<Variable> service_variables() {
  return {
      {{"HETU_COORDINATOR", "", "heturun",
        "Address of the job's group coordinator, with keys. It is a secret of the job."},
       [](Env& e, const std::string&, const std::string& v) { e.coordinator = v; }},
      {{"HETU_SERVERS", "", "heturun",
        "Addresses of the job's parameter servers, in their order, with keys. It is a secret of "
        "the job."},
       [](Env& e, const std::string&, const std::string& v) { e.servers = v; }},
  };
}

std::vector<Variable> launcher_variables() {
  return {
      {{"HETU_JOB", "", "heturun", "Random name of the job; not set without heturun."},
       [](Env& e, const std::string&, const std::string& v) { e.job = v; }},
      {{"HETU_HOSTS", "", "heturun",
        "Hosts and their numbers of workers, such as w0:8,w1:8. Workers are numbered in this "
        "order."},
       [](Env& e, const std::string& n, const std::string& v) { e.hosts = parse_hosts(v, n); }},
      {{"HETU_PROGRESS_FD", "", "heturun",
        "File descriptor for progress records, one JSON object per line."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.progress_fd = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"HETU_ELASTIC", "", "heturun",
        "Layout of this round of heturun --elastic --layout, as pipelines x stages x micro-batches "
        "of each pipeline, such as 2x2x4."},
       nullptr},
      {{"HETU_RUN_FOLDER", "", "heturun",
        "Run folder of a job of heturun --elastic, for its rounds. Workers don't receive it."},
       nullptr},
      {{"HETU_ROUND", "", "heturun",
        "File in which a round of heturun --elastic notes what its workers report. Workers don't "
        "receive it."},
       nullptr},
      {{"HETU_FIRST_WORKER", "0", "heturun",
        "Number of this pipeline's first worker, if each pipeline is a separate job of Open MPI."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.first_worker = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"HETU_PIPELINES", "1", "heturun",
        "Number of pipelines that are separate jobs of Open MPI (--on-failure shrink). 1: one job "
        "for all."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.pipelines = parse_int(n, v, 1, kMostWorkers);
       }},
      {{"HETU_CHECK", "", "heturun",
        "Number of workers of the job that is about to start. This process checks whether it can "
        "train with its options, and exits."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.check = true;
         e.workers = parse_int(n, v, 1, kMostWorkers);
       }},
      {{"HETU_CONTROL_TOKEN", "", "heturun",
        "Secret that authenticates a worker's guard to heturun. It is not passed on to the "
        "worker."},
       nullptr},
      {{"HETU_LD_PRELOAD", "", "heturun",
        "The caller's LD_PRELOAD, which the guard restores for the worker. mpirun itself preloads "
        "a library of Hetu that closes mpirun's ports to other users."},
       nullptr},
      {{"HETU_PATH", "", "heturun",
        "The caller's PATH, which the guard restores for the worker, because mpirun puts its own "
        "folder first."},
       nullptr},
      {{"OMPI_COMM_WORLD_RANK", "0", "Open MPI", "Number of this worker."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.worker = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"OMPI_COMM_WORLD_SIZE", "1", "Open MPI", "Number of workers in the job."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.workers = parse_int(n, v, 1, kMostWorkers);
       }},
      {{"OMPI_COMM_WORLD_LOCAL_RANK", "0", "Open MPI", "Number of this worker on its host."},
       [](Env& e, const std::string& n, const std::string& v) {
         e.local_worker = parse_int(n, v, 0, kMostWorkers);
       }},
      {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1", "Open MPI", "Number of the job's workers on this host."},
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
        "Hosts of an allocation and the number of workers on each, such as 2(x3),1. Read by "
        "heturun without -c and -w."},
       nullptr},
      {{"DMLC_*, PS_*", "", "reserved",
        "SD-PIPE's variables for the parameter server. They are passed on to workers, but not "
        "read."},
       nullptr},
  };
}

}  // namespace

std::vector<Variable> all() {
  std::vector<Variable> all;
  append(all, user_variables());
  append(all, launcher_variables());
  append(all, by_hand_variables());
  append(all, service_variables());
  append(all, other_variables());
  return all;
}

}  // namespace hetu::variables
