// On how many threads the kernels of the calling thread are made and run, and copies by them.
// Nothing above the devices knows whose threads these are.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hetu {

/// How many.
int threads();

/// From now on so many, at least 1.
void set_threads(int count);

/// Bytes of host memory by some of those threads: one reads and writes it more slowly than a card
/// takes what it writes.
void copy_by_threads(std::byte* to, const std::byte* from, std::int64_t bytes);

/// While it lives, this thread computes on so many; 0: on as many as before.
class Threads {
 public:
  explicit Threads(int now) : before_(threads()) {
    if (now > 0) set_threads(now);
  }
  ~Threads() { set_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace hetu
