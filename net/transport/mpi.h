// Workers that are processes under mpirun.
#pragma once
#include <memory>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Joins the MPI job that started this process (alone, it is a job of one). Once per process.
/// Destroying the transport leaves the job in order, together with all workers; while an exception
/// passes, it ends the job instead. Throws Unsupported in a build without MPI, Comm and Timeout if
/// the workers do not come together.
std::unique_ptr<Transport> connect_mpi(const Options& options = {});

}  // namespace hetu::comm
