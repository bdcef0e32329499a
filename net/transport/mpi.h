// Transport between processes that mpirun has started.
#pragma once
#include <memory>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Joins the MPI job that started this process. Without mpirun it is a job of one worker. Call it
/// once per process.
///
/// Destroying the transport leaves the job in order, together with all workers. While an exception
/// propagates, it ends the job for the others and lets the exception continue. Throws Unsupported
/// in a build without MPI, and Comm or Timeout if the workers do not come together.
std::unique_ptr<Transport> connect_mpi(const Options& options = {});

}  // namespace hetu::comm
