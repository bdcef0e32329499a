// On how many threads the kernels of the calling thread are made and run. Nothing above the devices
// knows whose threads these are.
#pragma once

namespace hetu {

/// How many.
int threads();

/// From now on so many, at least 1.
void set_threads(int count);

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
