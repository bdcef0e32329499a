// Disturbances as pure functions, so that the simulator and a rehearsal draw the same ones.
#pragma once
#include <cstdint>

namespace hetu {

/// Factor of one instruction's time: 1 + strength * |N(0, 1)|. A function of its arguments alone;
/// `worker` is global (pipeline * workers + worker), `index` counts the compute instructions (F, B,
/// I, W, R) before it in its row, so that lowering changes no draw.
double jitter_factor(std::uint64_t seed, int worker, std::int64_t index, double strength);

/// True with probability 0.1: whether this instruction first pauses (`--hetero`). Arguments as
/// above.
bool pauses(std::uint64_t seed, int worker, std::int64_t index);

}  // namespace hetu
