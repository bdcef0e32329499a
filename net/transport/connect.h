// Connects the processes of a job. There is one row per transport, chosen by name.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Joins the job that this process was started for. Call it once per process. Throws
/// InvalidArgument if no row has the name `transport`, and otherwise what that row's function
/// throws: Unsupported, Comm or Timeout.
std::unique_ptr<Transport> connect(std::string_view transport, const Options& options);

/// Returns the names of the rows; the first is the default.
std::vector<const char*> transport_names();

}  // namespace hetu::comm
