// PTX as text: functions, variables, statements. The meaning of instructions is defined in
// program.h.
// Source: NVIDIA, PTX ISA 9.0, "Syntax", "State Spaces, Types, and Variables".
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hetu::emulator {

/// A variable of a state space: "param", "shared", "local", "global", "const".
struct Variable {
  std::string name, space;
  std::size_t bytes = 0, alignment = 1;
  std::vector<unsigned char> values;  ///< initial values of a global variable
  bool dynamic = false;               ///< "extern": its size is given at launch
};

/// The registers `name`, or `name`0 to `name``count - 1`.
struct Registers {
  std::string name;
  int count = 0;  ///< 0: a single register with that name
  int bytes = 0;  ///< 1: a predicate
};

struct Statement {
  enum class Kind { Instruction, Label, Open, Close, Registers, Variable };
  Kind kind = Kind::Instruction;
  int line = 0;  ///< within the module, from 1
  std::string guard;
  bool guard_negated = false;
  std::string opcode;  ///< or the label
  std::vector<std::string> operands;
  std::vector<Registers> registers;
  std::vector<Variable> variables;
};

struct Function {
  std::string name;
  bool entry = false;
  std::vector<Variable> parameters, results;
  std::size_t body = 0, end = 0;  ///< offsets in the text, between the braces
  int line = 0;
  int most_threads = 1024;  ///< per block, as compiled
};

struct Text {
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

/// Reads everything except function bodies. Throws Problem.
Text read_module(const std::string& ptx);
std::vector<Statement> read_body(const std::string& ptx, const Function& function);

/// Returns the bytes of ".f32", "u8", ...; 1 for "pred".
int type_bytes(std::string_view type);
/// Splits "a, {b, c}, [d]" into "a", "{b, c}", "[d]".
std::vector<std::string> split_operands(std::string_view list);

}  // namespace hetu::emulator
