// The values of the environment variables, and the rows of their documentation.
#pragma once
#include <string>
#include <vector>

#include "base/device.h"
#include "base/log.h"

namespace hetu {

/// One host and the number of workers that are started on it. Workers are numbered host by host.
struct HostWorkers {
  std::string host;
  int workers = 0;
  bool operator==(const HostWorkers&) const = default;
};

/// The values of all variables, validated. env_table() describes each variable.
struct Env {
  double timeout_s = 300;
  Level log_level = Level::Info;
  KernelChoice kernels = KernelChoice::Best;
  std::string device = "auto";
  std::string devices;
  std::string transport = "auto";
  std::string nccl = "libnccl.so.2";
  int threads = 0;
  std::string imagenet_train_root;
  std::string imagenet_val_root;
  double debug_hetero = 0;  ///< seconds

  std::string job;
  std::vector<HostWorkers> hosts;
  int progress_fd = -1;
  std::string coordinator;
  std::string servers;

  bool check = false;  ///< true: only check whether a job of `workers` workers can train

  int worker = 0;
  int workers = 1;
  int first_worker = 0;
  int pipelines = 1;  ///< pipelines that are separate jobs under Open MPI; 1: none
  int local_worker = 0;
  int local_workers = 1;

  bool by_hand = false;  ///< true: several workers that neither heturun nor Open MPI started
  /// True: the launcher reports that all workers are on this host; false: unknown.
  bool one_host = false;
  /// Name of the job on this host, from its launcher; "" if started by hand.
  std::string launch_name;
  std::string master_address = "127.0.0.1";
  int master_port = 1234;
  std::string job_secret;
  /// Why the start variables are inconsistent, so the worker is unknown; "" if they are not.
  std::string start_fault;

  std::string source_dir;
  std::string build_dir;
};

/// One row of the documentation.
struct EnvRow {
  std::string name;
  std::string fallback;  ///< the default; "" for none
  /// "user", "heturun", "Open MPI", "Slurm" or "tests"; a "reserved" variable is not read.
  std::string set_by;
  std::string meaning;
};

}  // namespace hetu
