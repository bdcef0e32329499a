// open_mesh for builds without ZeroMQ.
#include "base/error.h"
#include "net/transport/zmq.h"

namespace hetu::comm {

std::unique_ptr<Mesh> open_mesh(const MeshAddress&, const Options&) {
  fail(Code::Unsupported,
       "this build has no ZeroMQ, which --on-failure shrink needs to connect pipelines; install "
       "ZeroMQ and configure with -DHETU_ZMQ=ON, or leave --on-failure at its default");
}

}  // namespace hetu::comm
