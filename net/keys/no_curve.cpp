// The functions of keys.h for builds without ZeroMQ.
#include "base/error.h"
#include "net/keys/keys.h"

namespace hetu::curve {

KeyPair make_key_pair() {
  fail(Code::Unsupported,
       "this build has no ZeroMQ, which creates the keys; install ZeroMQ and configure with "
       "-DHETU_ZMQ=ON");
}

}  // namespace hetu::curve
