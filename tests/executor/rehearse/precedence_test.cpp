#include "executor/rehearse/precedence.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace hetu {
namespace {

int policy() { return sched_getscheduler(0); }

// Covers a thread that existed before, and a thread that starts while the precedence is held.
TEST(Precedence, IsOfAllThreadsWhileItHoldsAndOfNoneAfterwards) {
  std::mutex mutex;
  std::condition_variable changed;
  int asked = 0, there_before = -1;
  std::thread old([&] {
    std::unique_lock lock(mutex);
    for (int round = 1; round <= 2; ++round) {
      changed.wait(lock, [&] { return asked == round; });
      there_before = policy();
      asked = 0;
      changed.notify_all();
    }
  });
  const auto of_old = [&](int round) {
    std::unique_lock lock(mutex);
    asked = round;
    changed.notify_all();
    changed.wait(lock, [&] { return asked == 0; });
    return there_before;
  };
  bool granted = false;
  {
    const Precedence precedence;
    granted = precedence.granted();
    const int expected = granted ? SCHED_RR : SCHED_OTHER;
    EXPECT_EQ(policy(), expected);
    EXPECT_EQ(of_old(1), expected);
    int started = -1;
    std::thread([&] { started = policy(); }).join();
    EXPECT_EQ(started, expected);
    const Precedence inner;  // must not end the outer scope's precedence
    EXPECT_FALSE(granted && inner.granted());
  }
  EXPECT_EQ(policy(), SCHED_OTHER);
  EXPECT_EQ(of_old(2), SCHED_OTHER);
  old.join();
  if (!granted) GTEST_SKIP() << "the system does not allow it here";
}

}  // namespace
}  // namespace hetu
