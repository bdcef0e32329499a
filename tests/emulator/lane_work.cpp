#include "tests/emulator/lane_work.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/emulator/warp.h"

namespace hetu::emulator {
namespace {

template <class T>
void move(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  T* const to = warp.at<T>(in.operands[0]);
  const T* const from = warp.at<T>(in.operands[1]);
  for (int lane = 0; lane < kLanes; ++lane)
    if ((lanes >> lane & 1) != 0) to[lane] = from[lane];
}

enum class Shuffle { Up, Down, Butterfly, Index };

/// Source: NVIDIA, PTX ISA 9.0, "shfl.sync".
template <Shuffle shuffle>
void exchange(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto* const a = warp.at<std::uint32_t>(in.operands[2]);
  const auto* const b = warp.at<std::uint32_t>(in.operands[3]);
  const auto* const c = warp.at<std::uint32_t>(in.operands[4]);
  std::uint32_t made[kLanes] = {};
  bool within[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const int clamp = static_cast<int>(c[lane] & 31), segment = static_cast<int>(c[lane] >> 8 & 31);
    const int by = static_cast<int>(b[lane] & 31);
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    const int of = shuffle == Shuffle::Up          ? lane - by
                   : shuffle == Shuffle::Down      ? lane + by
                   : shuffle == Shuffle::Butterfly ? lane ^ by
                                                   : least | (by & ~segment);
    within[lane] = shuffle == Shuffle::Up ? of >= most : of <= most;
    const int from = within[lane] ? of : lane;
    if ((lanes >> from & 1) == 0)
      warp.fail(in, lane, fmt::format("it reads lane {}, which takes no part", from));
    made[lane] = a[from];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    warp.at<std::uint32_t>(in.operands[0])[lane] = made[lane];
    warp.at<bool>(in.operands[1])[lane] = within[lane];
  }
}

enum class Vote { Ballot, Any, All };

template <Vote vote>
void count(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  std::uint32_t votes = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    if ((lanes >> lane & 1) != 0 && warp.at<bool>(in.operands[1])[lane]) votes |= 1u << lane;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    if (vote == Vote::Ballot)
      warp.at<std::uint32_t>(in.operands[0])[lane] = votes;
    else
      warp.at<bool>(in.operands[0])[lane] = vote == Vote::Any ? votes != 0 : votes == lanes;
  }
}

}  // namespace

void meet(Warp& warp, const Instruction&, std::uint32_t) { warp.meet(); }

void trap(Warp& warp, const Instruction& in, std::uint32_t) { warp.fail(in, 0, "trap"); }

Meaning move_of(int bytes) {
  return bytes == 1   ? &move<std::uint8_t>
         : bytes == 2 ? &move<std::uint16_t>
         : bytes == 4 ? &move<std::uint32_t>
                      : &move<std::uint64_t>;
}

void regroup(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto results = static_cast<std::size_t>(in.elements);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    std::byte all[16];
    std::size_t at = 0;
    const auto each = [&](std::size_t from, std::size_t to, const auto& f) {
      at = 0;
      for (std::size_t i = from; i < to; ++i) {
        const auto bytes = static_cast<std::size_t>(in.operands[i].bytes);
        f(warp.at<std::byte>(in.operands[i]) + static_cast<std::size_t>(lane) * bytes, bytes);
        at += bytes;
      }
    };
    each(results, in.operands.size(),
         [&](std::byte* x, std::size_t bytes) { std::memcpy(all + at, x, bytes); });
    each(0, results, [&](std::byte* x, std::size_t bytes) { std::memcpy(x, all + at, bytes); });
  }
}

void cut_off(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane)
    if ((lanes >> lane & 1) != 0)
      std::memcpy(warp.at<std::byte>(in.operands[0]) + lane * in.operands[0].bytes,
                  warp.at<std::byte>(in.operands[1]) + lane * in.operands[1].bytes,
                  static_cast<std::size_t>(in.operands[0].bytes));
}

Meaning exchange_of(const std::string& how) {
  return how == "up"     ? &exchange<Shuffle::Up>
         : how == "down" ? &exchange<Shuffle::Down>
         : how == "bfly" ? &exchange<Shuffle::Butterfly>
         : how == "idx"  ? &exchange<Shuffle::Index>
                         : nullptr;
}

Meaning vote_of(const std::string& how) {
  return how == "ballot" ? &count<Vote::Ballot>
         : how == "any"  ? &count<Vote::Any>
         : how == "all"  ? &count<Vote::All>
                         : nullptr;
}

}  // namespace hetu::emulator
