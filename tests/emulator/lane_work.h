// Instructions that move the values of lanes, within a lane and between the lanes of a warp.
#pragma once
#include <string>

#include "tests/emulator/program.h"

namespace hetu::emulator {

/// Runs bar.warp.sync.
void meet(Warp& warp, const Instruction& in, std::uint32_t lanes);
void trap(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// Returns the mov of a register of `bytes` bytes.
Meaning move_of(int bytes);
/// Runs mov from the bytes of several registers to several others.
void regroup(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// Copies the lower bytes of a wider register.
void cut_off(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// Returns shfl.sync "up", "down", "bfly" or "idx", or null for others.
Meaning exchange_of(const std::string& how);
/// Returns vote.sync "ballot", "any" or "all", or null for others.
Meaning vote_of(const std::string& how);

}  // namespace hetu::emulator
