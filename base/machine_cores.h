// The processors of this machine. Read by whoever starts threads or workers.
#pragma once
#include <string>

namespace hetu {

/// Processors that this process may use, at least one: those that it may be put on
/// (sched_getaffinity), and no more than its control groups let it have at a time, rounded up
/// (cpu.max, cpu.cfs_quota_us: what `docker run --cpus` and limits of Kubernetes set).
int machine_cores();

/// The second of both, of files below `root` (tests); 0: no limit.
int cores_of_control_groups(const std::string& root = "");

}  // namespace hetu
