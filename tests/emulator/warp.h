// The execution of a kernel: warps, whose lanes execute together where possible, and their block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/emulator/interpreter.h"
#include "tests/emulator/program.h"
#include "tests/emulator/shared_memory.h"

namespace hetu::emulator {

/// The common state of a block's warps.
struct Block {
  const Program& program;
  const Launch& launch;
  Memory& memory;
  SharedMemory& shared;
  std::vector<std::byte> parameters;
  unsigned index[3] = {};
  std::uint32_t number = 0;  ///< within the launch, from 1
  unsigned threads() const { return launch.block[0] * launch.block[1] * launch.block[2]; }
};

class Warp {
 public:
  Warp(Block& block, unsigned number);

  /// Runs the lanes until they reach barriers or the end.
  void run();
  bool ended() const { return live_ == 0; }
  void pass_barrier() { at_barrier_ = 0; }

  template <class T>
  T* at(const Operand& operand) {
    return reinterpret_cast<T*>(registers_.get() + operand.at);
  }
  Block& block() { return block_; }
  /// Returns the lane's thread within the block.
  unsigned thread(int lane) const { return number_ * kLanes + static_cast<unsigned>(lane); }
  /// Returns how many times the lanes have met since the start.
  std::uint32_t meetings() const { return meetings_; }
  void meet() { ++meetings_; }
  std::byte* local(int lane) {
    return local_.data() + static_cast<std::size_t>(lane) * block_.program.local_bytes;
  }
  /// Returns the lane's cp.async copies to shared memory that are not complete.
  std::vector<Flight>& flights(int lane) { return flights_[static_cast<std::size_t>(lane)]; }
  std::uint32_t carry[kLanes] = {};

  [[noreturn]] void fail(const Instruction& in, int lane, const std::string& what) const;

 private:
  void set_fixed();
  void go(std::uint32_t lanes, int at, int before);
  /// Returns true if the lanes continue with the next instruction. Otherwise their places have been
  /// set.
  bool step(const Instruction& in, std::uint32_t lanes, int& at);
  bool branch(std::uint32_t lanes, std::uint32_t taken, const Instruction& in, int& at);
  void leave(std::uint32_t lanes);
  void set_place(std::uint32_t lanes, int at);
  std::uint32_t existing() const;
  void deadlock() const;

  struct Free {
    void operator()(std::byte* p) const;
  };

  Block& block_;
  unsigned number_;
  std::unique_ptr<std::byte, Free> registers_;
  std::vector<std::byte> local_;
  std::vector<Flight> flights_[kLanes];
  int place_[kLanes] = {};
  std::vector<int> returns_[kLanes];
  std::uint32_t live_ = 0, at_barrier_ = 0, waits_ = 0, meetings_ = 1;
};

}  // namespace hetu::emulator
