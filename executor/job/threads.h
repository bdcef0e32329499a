// On how many threads the kernels of this thread are made and run. Read where that changes for a
// while only.
#pragma once
#include <omp.h>

namespace hetu {

/// While it lives, this thread computes on so many; 0: on as many as before.
class Threads {
 public:
  explicit Threads(int now) : before_(omp_get_max_threads()) {
    if (now > 0) omp_set_num_threads(now);
  }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace hetu
