// connect_mpi for builds without MPI.
#include "base/error.h"
#include "net/transport/mpi.h"

namespace hetu::comm {

std::unique_ptr<Transport> connect_mpi(const Options&) {
  fail(Code::Unsupported,
       "this build has no MPI; configure with -DHETU_MPI=ON, or run all workers in one process");
}

}  // namespace hetu::comm
