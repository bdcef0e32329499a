// How the processes of a job are connected: one row per transport, chosen by name.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Joins the job that this process was started for, once per process. Throws InvalidArgument for a
/// name of no row, and as that row's function does: Unsupported, Comm, Timeout.
std::unique_ptr<Transport> connect(std::string_view transport, const Options& options);

/// The names of the rows, the default first.
std::vector<const char*> transport_names();

}  // namespace hetu::comm
