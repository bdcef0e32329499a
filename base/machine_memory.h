// The memory of this machine. Read by executor/job and ps/server.
#pragma once
#include <cstdint>

namespace hetu {

/// Bytes of memory of this machine (/proc/meminfo), or of this process's control group if that may
/// use less; 0 if neither can be read.
std::int64_t machine_bytes();

}  // namespace hetu
