#include "tests/emulator/streams.h"

#include <algorithm>
#include <utility>

namespace hetu::emulator {

bool meet(const Touch& a, const Touch& b) {
  const auto at = reinterpret_cast<std::uintptr_t>(a.begin);
  const auto other = reinterpret_cast<std::uintptr_t>(b.begin);
  return (a.writes || b.writes) && at < other + b.bytes && other < at + a.bytes;
}

const Touch* Stream::unordered(const std::function<bool(const Touch&)>& meets,
                               std::uint64_t number) const {
  const auto in = [&](const Work& work) -> const Touch* {
    const auto found = std::find_if(work.touches.begin(), work.touches.end(), meets);
    return found == work.touches.end() ? nullptr : &*found;
  };
  if (works_)
    if (const Touch* const found = in(now_.work)) return found;
  for (const Given& one : queue_) {
    if (one.number > number) break;
    if (const Touch* const found = in(one.work)) return found;
  }
  return nullptr;
}

void Stream::give(Work work, std::uint64_t number) {
  if (captures_) {
    capture_.push_back(std::move(work));
    return;
  }
  queue_.push_back({std::move(work), number});
  ++given_;
}

void Stream::finish(std::uint64_t given) {
  while (done_ < given) {
    if (works_) {
      turn_->until([&] { return !works_; });
      continue;
    }
    now_ = std::move(queue_.front());
    queue_.pop_front();
    works_ = true;
    try {
      now_.work.run();
    } catch (...) {
      end_one();
      throw;
    }
    end_one();
  }
}

void Stream::end_one() {
  works_ = false;
  now_ = {};
  ++done_;
  if (turn_ != nullptr) turn_->changed();
}

void Stream::capture(bool forbids_all) {
  captures_ = true;
  of_all_ = forbids_all;
  by_ = std::this_thread::get_id();
  broken_ = false;
  capture_.clear();
}

std::vector<Work> Stream::captured(bool& whole) {
  whole = std::exchange(captures_, false) && !broken_;
  return std::exchange(capture_, {});
}

}  // namespace hetu::emulator
