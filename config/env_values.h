// What the environment variables say: the values, and the rows of their documentation.
#pragma once
#include <string>
#include <vector>

#include "base/device.h"
#include "base/log.h"

namespace hetu {

/// One host and the workers started on it; workers are numbered host by host.
struct HostWorkers {
  std::string host;
  int workers = 0;
  bool operator==(const HostWorkers&) const = default;
};

/// The values of all variables, validated. What each one means stands in env_table().
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

  bool check = false;  ///< only look whether the job of so many workers can train

  int worker = 0;
  int workers = 1;
  int first_worker = 0;
  int pipelines = 1;  ///< that are jobs of their own under Open MPI
  int local_worker = 0;
  int local_workers = 1;

  bool by_hand = false;     ///< several workers that neither heturun nor Open MPI has started
  bool one_host = false;    ///< of these, as their launcher says; false: unknown
  std::string launch_name;  ///< of the job on this host, by whoever started it; "" by hand
  std::string master_address = "127.0.0.1";
  int master_port = 1234;
  std::string job_secret;
  std::string start_fault;  ///< why nobody knows whether this is one of several workers; else ""

  std::string source_dir;
  std::string build_dir;
};

/// One row of the documentation.
struct EnvRow {
  std::string name;
  std::string fallback;  ///< the value that stands if the variable is not set; "" for none
  std::string set_by;  ///< "user", "heturun", "Open MPI", "Slurm", "tests"; "reserved" is not read
  std::string meaning;
};

}  // namespace hetu
