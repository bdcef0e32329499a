// The functions of zmq_server.cpp, for builds without ZeroMQ.
#include "base/error.h"
#include "ps/server/serve.h"

namespace hetu::ps {

bool can_serve_parameters() { return false; }

void serve_parameters(const ServeParameters&) {
  fail(Code::Unsupported,
       "this build has no ZeroMQ, which workers need to communicate with parameter servers; "
       "install ZeroMQ and configure with -DHETU_ZMQ=ON");
}

}  // namespace hetu::ps
