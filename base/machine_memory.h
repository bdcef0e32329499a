// The memory of this machine. Read by executor/job and ps/server.
#pragma once
#include <cstdint>

namespace hetu {

/// Returns the bytes of memory of this machine (/proc/meminfo), or the limit of this process's
/// control groups if that is less. Returns 0 if neither can be read.
std::int64_t machine_bytes();

}  // namespace hetu
