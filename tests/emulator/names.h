// What the words of a kernel's text stand for: registers, numbers, variables, addresses.
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

/// "ld.global.u32" -> "ld", "global", "u32".
std::vector<std::string> parts_of(std::string_view opcode);

class Names {
 public:
  Names(const Text& text, const Globals& globals) : text_(text), globals_(globals) {}

 protected:
  static std::size_t aligned(std::size_t at, std::size_t by) { return (at + by - 1) / by * by; }
  [[noreturn]] void bad(const Statement& s, const std::string& what) const;

  /// A new place in the register file.
  Operand place(int bytes);
  void put_parameters(const Function& entry);
  void put_shared(const Variable& v);
  /// In a thread's own memory, `of` a function that names its own alike.
  void put_local(const Variable& v, const std::string& of = "");
  void declare(const Registers& r);
  /// Where dynamic shared memory begins, once all else has its place.
  void end_shared();

  /// A register, or a number of so many bytes.
  Operand operand(const Statement& s, const std::string& text, int bytes);
  /// "{a, b}", "a|p" or "a", all of one width where they are numbers.
  void list(const Statement& s, const std::string& text, int bytes, Instruction& to);
  /// "[a+4]".
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
  /// The address of a variable within its space.
  std::optional<Operand> variable(const std::string& name, int bytes);

  std::map<std::tuple<int, std::uint64_t, int>, Operand> fixed_;
  std::map<std::string, std::size_t> kernel_parameters_, shared_;
  std::vector<std::size_t> dynamic_;  ///< of made_.fixed
};

}  // namespace hetu::emulator
