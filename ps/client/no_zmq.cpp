// The functions of zmq_client.cpp and zmq_ask_status.cpp, for builds without ZeroMQ.
#include "base/error.h"
#include "ps/client/ask_status.h"
#include "ps/client/parameter_client.h"

namespace hetu::ps {

std::unique_ptr<ParameterClient> connect_servers(const std::string&, const ParameterOptions&) {
  fail(Code::Unsupported,
       "this build has no ZeroMQ, which workers need to communicate with parameter servers; "
       "install ZeroMQ and configure with -DHETU_ZMQ=ON");
}

std::vector<AskedStatus> ask_status(const std::string&, double) {
  fail(Code::Unsupported,
       "this build has no ZeroMQ, which is needed to query parameter servers; "
       "install ZeroMQ and configure with -DHETU_ZMQ=ON");
}

}  // namespace hetu::ps
