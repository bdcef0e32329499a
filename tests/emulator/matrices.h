// Matrix units: ldmatrix, mma.sync, wmma.
#pragma once
#include <string>

#include "tests/emulator/program.h"

namespace hetu::emulator {

/// Null if it is not known; `variant` is the instruction's.
Meaning matrix_meaning(const std::string& opcode, int& variant);

}  // namespace hetu::emulator
