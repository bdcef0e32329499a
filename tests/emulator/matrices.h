// Matrix units: ldmatrix, mma.sync, wmma.
#pragma once
#include <string>

#include "tests/emulator/program.h"

namespace hetu::emulator {

/// Returns the meaning of an opcode, or null if it is not supported. `variant` is set for the
/// instruction.
Meaning matrix_meaning(const std::string& opcode, int& variant);

}  // namespace hetu::emulator
