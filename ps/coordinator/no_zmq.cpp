// The functions of zmq_client.cpp and zmq_server.cpp, for builds without ZeroMQ.
#include "ps/coordinator/group_client.h"
#include "ps/coordinator/serve.h"

namespace hetu::ps {

namespace {
[[noreturn]] void without() {
  fail(Code::Unsupported,
       "this build has no ZeroMQ, which workers need to communicate with the coordinator; "
       "install ZeroMQ and configure with -DHETU_ZMQ=ON");
}
}  // namespace

std::unique_ptr<GroupClient> connect_coordinator(const std::string&, const ClientOptions&) {
  without();
}
Endpoint endpoint_of_worker(const std::string&, int) { without(); }
bool can_serve_coordinator() { return false; }
std::string coordinator_address(const std::string&, const std::string&, const curve::KeyPair&) {
  without();
}
void serve_coordinator(const ServeOptions&) { without(); }

}  // namespace hetu::ps
