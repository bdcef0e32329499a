// The resolution of names in a kernel's text: registers, numbers, variables, addresses.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/emulator/program.h"

namespace hetu::emulator {

/// Splits an opcode: "ld.global.u32" -> "ld", "global", "u32".
std::vector<std::string> parts_of(std::string_view opcode);

class Names {
 public:
  Names(const Text& text, const Globals& globals) : text_(text), globals_(globals) {}

 protected:
  static std::size_t aligned(std::size_t at, std::size_t by) { return (at + by - 1) / by * by; }
  [[noreturn]] void bad(const Statement& s, const std::string& what) const;

  /// Returns a new place in the register file.
  Operand place(int bytes);
  void put_parameters(const Function& entry);
  void put_shared(const Variable& v);
  /// Places a variable in a thread's local memory. `of` is the function, because functions may use
  /// the same names.
  void put_local(const Variable& v, const std::string& of = "");
  void declare(const Registers& r);
  /// Sets where dynamic shared memory begins, after all other variables are placed.
  void end_shared();

  /// Returns the operand for a register, or for a number of `bytes` bytes.
  Operand operand(const Statement& s, const std::string& text, int bytes);
  /// Adds the operands of "{a, b}", "a|p" or "a". Numbers all have `bytes` bytes.
  void list(const Statement& s, const std::string& text, int bytes, Instruction& to);
  /// Adds the address "[a+4]".
  void address(const Statement& s, const std::string& text, Instruction& to);

  const Text& text_;
  const Globals& globals_;
  Program made_;
  std::vector<std::map<std::string, Operand>> scopes_;
  std::map<std::string, std::size_t> local_;

 private:
  Operand fixed(Fixed::Kind kind, std::uint64_t value, int bytes);
  const Operand* register_of(const std::string& name) const;
  std::optional<Operand> special(const std::string& name, int bytes);
  /// Returns the address of a variable within its space.
  std::optional<Operand> variable(const std::string& name, int bytes);

  std::map<std::tuple<int, std::uint64_t, int>, Operand> fixed_;
  std::map<std::string, std::size_t> kernel_parameters_, shared_;
  std::vector<std::size_t> dynamic_;  ///< indices into made_.fixed
};

}  // namespace hetu::emulator
