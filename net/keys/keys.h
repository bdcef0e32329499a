// The key pairs by which the processes of a job know each other. Read by whoever starts a job, by
// the coordinator's clients and server, and by the links between workers.
#pragma once
#include <string>

namespace hetu::curve {

/// A CURVE key pair: 64 hexadecimal digits each.
struct KeyPair {
  std::string public_key;
  std::string secret_key;
};

/// A new key pair. Throws Unsupported in a build without ZeroMQ, or with one that cannot encrypt.
KeyPair make_key_pair();

}  // namespace hetu::curve
