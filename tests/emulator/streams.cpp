#include "tests/emulator/streams.h"

#include <utility>

namespace hetu::emulator {

void Stream::give(Work work) {
  if (captures_) {
    capture_.push_back(std::move(work));
    return;
  }
  queue_.push_back(std::move(work));
  ++given_;
}

void Stream::finish(std::uint64_t given) {
  while (done_ < given) {
    if (works_) {
      turn_->until([&] { return !works_; });
      continue;
    }
    const Work next = std::move(queue_.front());
    queue_.pop_front();
    works_ = true;
    try {
      next();
    } catch (...) {
      end_one();
      throw;
    }
    end_one();
  }
}

void Stream::end_one() {
  works_ = false;
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
