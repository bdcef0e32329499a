// The secret by which one user's processes on several hosts know each other. Read by
// rendezvous.cpp.
#pragma once
#include <string>

namespace hetu::comm {

/// `given` (HETU_JOB_SECRET) if it is not "", else what the file holds that only this user can
/// read, which is made where there is none; "" for `path`: .config/hetu/job_secret of the user's
/// home folder. Throws Config on a secret that is too short, Io if the file cannot be made or
/// others may read it.
std::string job_secret(const std::string& given, std::string path = {});

/// So many random bytes of the system.
std::string random_bytes(int count);

}  // namespace hetu::comm
