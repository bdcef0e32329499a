// Runs a warp whose lanes may diverge.
//
// Each lane has its own place in the code. In each round the lanes that are furthest behind run,
// together with lanes that wait at the same place. They run until they diverge, wait, or reach the
// place of a lane ahead of them, which then joins. Code after a branch has higher places than the
// branch's sides, so diverged lanes meet again there.
//
// Example: lanes 0 to 15 jump from place 3 to place 8, the others go on at 4. The others run first.
// When they reach 8, all lanes continue together.
#include "tests/emulator/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace hetu::emulator {
namespace {

constexpr std::align_val_t kRegisterAlignment{64};

}  // namespace

void Warp::Free::operator()(std::byte* p) const { ::operator delete[](p, kRegisterAlignment); }

Warp::Warp(Block& block, unsigned number)
    : block_(block),
      number_(number),
      registers_(static_cast<std::byte*>(
          ::operator new[](block.program.register_bytes + 64, kRegisterAlignment))),
      local_(block.program.local_bytes * kLanes, std::byte{0xff}) {
  std::memset(registers_.get(), 0, block.program.register_bytes);
  live_ = existing();
  set_fixed();
}

std::uint32_t Warp::existing() const {
  const unsigned left = block_.threads() - number_ * kLanes;
  return left >= kLanes ? kAllLanes : (1u << left) - 1;
}

void Warp::set_fixed() {
  const unsigned* const of = block_.launch.block;
  for (const Fixed& f : block_.program.fixed)
    for (int lane = 0; lane < kLanes; ++lane) {
      const unsigned t = thread(lane);
      const unsigned thread_at[3] = {t % of[0], t / of[0] % of[1], t / of[0] / of[1]};
      std::uint64_t value = f.value;
      switch (f.kind) {
        case Fixed::Kind::Number:
          if (f.place.bytes == 1) value = value != 0 ? 1 : 0;  // a predicate
          break;
        case Fixed::Kind::Thread:
          value = thread_at[f.value];
          break;
        case Fixed::Kind::Threads:
          value = of[f.value];
          break;
        case Fixed::Kind::Block:
          value = block_.index[f.value];
          break;
        case Fixed::Kind::Blocks:
          value = block_.launch.grid[f.value];
          break;
        case Fixed::Kind::Lane:
          value = static_cast<std::uint64_t>(lane);
          break;
        case Fixed::Kind::Warp:
          value = number_;
          break;
        case Fixed::Kind::LaneMaskLess:
          value = (1u << lane) - 1;
          break;
      }
      std::memcpy(registers_.get() + f.place.at + lane * f.place.bytes, &value,
                  static_cast<std::size_t>(f.place.bytes));
    }
}

void Warp::fail(const Instruction& in, int lane, const std::string& what) const {
  const Program& p = block_.program;
  const auto at = static_cast<std::size_t>(&in - p.code.data());
  throw Problem(fmt::format("kernel {}, block {}, thread {}, line {} of PTX, \"{}\": {}", p.name,
                            block_.index[0], thread(lane), in.line, p.text[at], what));
}

void Warp::run() {
  for (;;) {
    const std::uint32_t ready = live_ & ~at_barrier_ & ~waits_;
    int at = 0, before = 0;
    std::uint32_t lanes = 0;
    if (ready == 0) {
      if (waits_ != 0) deadlock();
      return;
    }
    // Select the lanes that are furthest behind, with those that wait for them there.
    at = before = static_cast<int>(block_.program.code.size());
    for (int lane = 0; lane < kLanes; ++lane)
      if ((ready >> lane & 1) != 0) at = std::min(at, place_[lane]);
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((live_ & ~at_barrier_ & (1u << lane)) == 0) continue;
      if (place_[lane] == at)
        lanes |= 1u << lane;
      else if (place_[lane] > at)
        before = std::min(before, place_[lane]);
    }
    waits_ &= ~lanes;
    go(lanes, at, before);
  }
}

/// Runs the lanes until they diverge, wait, or reach the place of other lanes.
void Warp::go(std::uint32_t lanes, int at, int before) {
  const std::vector<Instruction>& code = block_.program.code;
  bool arrives = false;
  do {
    const Instruction& in = code[static_cast<std::size_t>(at)];
    std::uint32_t of = lanes;
    if (in.guard.at >= 0) {
      const auto* const is = this->at<std::uint8_t>(in.guard);
      for (int lane = 0; lane < kLanes; ++lane)
        if ((is[lane] != 0) == in.guard_negated) of &= ~(1u << lane);
    }
    if (in.flow == Flow::Next) {
      if (of != 0) in.meaning(*this, in, of);
      ++at;
      arrives = true;
    } else if (in.flow == Flow::Branch) {
      arrives = branch(lanes, of, in, at);
    } else {
      if (of != lanes && of != 0) fail(in, std::countr_zero(lanes), "a guard that lanes differ in");
      if (of == 0)
        ++at, arrives = true;
      else
        arrives = step(in, lanes, at);
    }
  } while (arrives && at < before);
  if (arrives) set_place(lanes, at);
}

bool Warp::branch(std::uint32_t lanes, std::uint32_t taken, const Instruction& in, int& at) {
  if (taken == lanes) {
    at = in.target;
    return true;
  }
  if (taken == 0) {
    ++at;
    return true;
  }
  set_place(taken, in.target);
  set_place(lanes & ~taken, at + 1);
  return false;
}

bool Warp::step(const Instruction& in, std::uint32_t lanes, int& at) {
  switch (in.flow) {
    case Flow::Call:
      for (int lane = 0; lane < kLanes; ++lane)
        if ((lanes >> lane & 1) != 0) returns_[lane].push_back(at + 1);
      at = in.target;
      return true;
    case Flow::Return:
      leave(lanes);
      return false;
    case Flow::Barrier:
      set_place(lanes, at + 1);
      at_barrier_ |= lanes;
      return false;
    case Flow::Collective: {
      std::uint32_t of = existing();
      if (in.members.at >= 0) {
        const auto* const mask = this->at<std::uint32_t>(in.members);
        const int first = std::countr_zero(lanes);
        for (int lane = 0; lane < kLanes; ++lane)
          if ((lanes >> lane & 1) != 0 && mask[lane] != mask[first])
            fail(in, lane, "lanes that stand here name different members");
        of = mask[first] & existing();
      }
      if ((lanes & ~of) != 0)
        fail(in, std::countr_zero(lanes & ~of), "a lane that is not among the members it names");
      if ((of & ~live_) != 0)
        fail(in, std::countr_zero(of & ~live_), "a lane that is to take part has ended");
      if (lanes != of) {
        set_place(lanes, at);
        waits_ |= lanes;
        return false;
      }
      in.meaning(*this, in, lanes);
      ++at;
      return true;
    }
    default:
      return true;
  }
}

void Warp::leave(std::uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    if (returns_[lane].empty()) {
      live_ &= ~(1u << lane);
    } else {
      place_[lane] = returns_[lane].back();
      returns_[lane].pop_back();
    }
  }
}

void Warp::set_place(std::uint32_t lanes, int at) {
  for (int lane = 0; lane < kLanes; ++lane)
    if ((lanes >> lane & 1) != 0) place_[lane] = at;
}

void Warp::deadlock() const {
  const int lane = std::countr_zero(waits_);
  fail(block_.program.code[static_cast<std::size_t>(place_[lane])], lane,
       fmt::format("lanes {:#x} wait for others, which stand at a barrier or elsewhere", waits_));
}

}  // namespace hetu::emulator
