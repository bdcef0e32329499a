// Key pairs with which the processes of a job authenticate each other. Read by launchers, by the
// coordinator's clients and server, and by the links between workers.
#pragma once
#include <string>

namespace hetu::curve {

/// A CURVE key pair. Each key has 64 hexadecimal digits.
struct KeyPair {
  std::string public_key;
  std::string secret_key;
};

/// Returns a new key pair. Throws Unsupported in a build without ZeroMQ, or if ZeroMQ was built
/// without encryption.
KeyPair make_key_pair();

}  // namespace hetu::curve
