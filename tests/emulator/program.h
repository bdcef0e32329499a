// A runnable kernel: instructions whose operands are places in a warp's register file, and whose
// meaning is a function.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/emulator/ptx_text.h"

namespace hetu::emulator {

inline constexpr int kLanes = 32;
inline constexpr std::uint32_t kAllLanes = ~0u;

class Warp;
struct Instruction;
/// The effect of an instruction in the lanes of a mask, which execute it together.
using Meaning = void (*)(Warp&, const Instruction&, std::uint32_t lanes);

/// The place of a register or a constant in the register file: kLanes elements.
struct Operand {
  int at = -1;
  int bytes = 0;  ///< per element; 1 for a predicate
};

enum class Flow {
  Next,
  Branch,      ///< to `target`
  Call,        ///< to `target`
  Return,      ///< from a call, or to the end
  Barrier,     ///< of the block
  Collective,  ///< by the lanes that `members` names, together
};

enum class Space { Generic, Global, Shared, Local, Parameter };

struct Instruction {
  Meaning meaning = nullptr;
  Flow flow = Flow::Next;
  Operand guard;
  bool guard_negated = false;
  std::vector<Operand> operands;  ///< in the order of the text, with lists expanded
  Operand members;                ///< for Collective: a mask, or none for all lanes
  int target = -1;
  // For accesses to memory: the address is operand number `address` plus `offset`.
  Space space = Space::Generic;
  int address = -1;
  std::int64_t offset = 0;
  int element_bytes = 0, elements = 1;
  bool signs = false;
  int variant = 0;  ///< for matrices: their layout, see matrices.cpp
  int line = 0;
};

/// A place of the register file that is set when a warp begins.
struct Fixed {
  enum class Kind {
    Number,   ///< value
    Thread,   ///< %tid, component `value`
    Threads,  ///< %ntid
    Block,    ///< %ctaid
    Blocks,   ///< %nctaid
    Lane,     ///< %laneid
    Warp,     ///< %warpid
    LaneMaskLess
  };
  Kind kind;
  std::uint64_t value;
  Operand place;
};

struct Program {
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::string> text;  ///< of the instructions, for messages
  std::vector<Fixed> fixed;
  std::size_t register_bytes = 0;
  std::size_t local_bytes = 0;  ///< per thread
  std::size_t static_shared = 0, dynamic_at = 0;
  std::size_t parameter_bytes = 0;
  std::vector<std::size_t> parameter_at, parameter_size;
  int most_threads = 0;
};

/// Global variables of a module, from name to address.
using Globals = std::map<std::string, std::uint64_t>;

/// The meaning of an opcode without side effects, and the bytes of its operands.
struct Form {
  Meaning meaning = nullptr;
  std::vector<int> bytes;
};

}  // namespace hetu::emulator
