// The number of processors of this machine. Read by code that starts threads or workers.
#pragma once
#include <string>

namespace hetu {

/// Returns the number of processors that this process may use, at least 1. This is the size of its
/// affinity mask (sched_getaffinity), limited by its control groups (cpu.max or cpu.cfs_quota_us,
/// rounded up). `docker run --cpus` and Kubernetes limits set the latter.
int machine_cores();

/// Returns only the limit of the control groups; 0 if there is none. Reads files below `root`, for
/// tests.
int cores_of_control_groups(const std::string& root = "");

}  // namespace hetu
