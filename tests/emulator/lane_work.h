// Instructions that move what lanes hold: within a lane, and between the lanes of a warp.
#pragma once
#include <string>

#include "tests/emulator/program.h"

namespace hetu::emulator {

/// bar.warp.sync
void meet(Warp& warp, const Instruction& in, std::uint32_t lanes);
void trap(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// mov, of one register of so many bytes.
Meaning move_of(int bytes);
/// mov, of the bytes of several registers to several others.
void regroup(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// The lower bytes of a wider register.
void cut_off(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// shfl.sync: "up", "down", "bfly", "idx"; null if there is none.
Meaning exchange_of(const std::string& how);
/// vote.sync: "ballot", "any", "all".
Meaning vote_of(const std::string& how);

}  // namespace hetu::emulator
