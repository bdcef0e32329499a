// The secret by which the processes of one user on several hosts recognise each other. Read by
// rendezvous_host.cpp and rendezvous_guest.cpp.
#pragma once
#include <string>

namespace hetu::comm {

/// Returns the secret of a job. If `given` (HETU_JOB_SECRET) is not "", returns it. Otherwise
/// returns the first line of the file at `path`, which only this user may read. Creates the file
/// with random content if it does not exist. The default of `path` is .config/hetu/job_secret in
/// the user's home folder. Throws Config if `given` is too short. Throws Io if the file cannot be
/// created, holds too short a secret, or is not a file of this user with mode 600.
std::string job_secret(const std::string& given, std::string path = {});

/// Returns `count` random bytes from the system. Throws Io if there are none.
std::string random_bytes(int count);

}  // namespace hetu::comm
