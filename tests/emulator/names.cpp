#include "tests/emulator/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>

#include "tests/emulator/interpreter.h"

namespace hetu::emulator {
namespace {

/// Parses "0f3f800000", "0d...", "-12", "0x1f", "12U".
std::optional<std::uint64_t> number(const std::string& text, int bytes) {
  if (text.empty()) return std::nullopt;
  const bool negative = text[0] == '-';
  const char* const from = text.c_str() + (negative ? 1 : 0);
  if (std::isdigit(static_cast<unsigned char>(*from)) == 0) return std::nullopt;
  if (from[0] == '0' && (from[1] == 'f' || from[1] == 'F' || from[1] == 'd' || from[1] == 'D')) {
    std::uint64_t bits = std::strtoull(from + 2, nullptr, 16);
    const bool is_double = from[1] == 'd' || from[1] == 'D';
    if (is_double && bytes == 4)
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    if (!is_double && bytes == 8)
      bits = std::bit_cast<std::uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
    return bits;
  }
  const std::uint64_t value = std::strtoull(from, nullptr, 0);
  return negative ? ~value + 1 : value;
}

}  // namespace

std::vector<std::string> parts_of(std::string_view opcode) {
  std::vector<std::string> made(1);
  for (const char c : opcode)
    if (c == '.')
      made.emplace_back();
    else
      made.back() += c;
  return made;
}

void Names::bad(const Statement& s, const std::string& what) const {
  std::string operands;
  for (const std::string& one : s.operands) operands += (operands.empty() ? " " : ", ") + one;
  throw Problem(
      fmt::format("{}, line {} of PTX: {}: {}{}", made_.name, s.line, what, s.opcode, operands));
}

Operand Names::place(int bytes) {
  const Operand made{static_cast<int>(made_.register_bytes), bytes};
  made_.register_bytes +=
      std::max<std::size_t>(64, std::size_t{kLanes} * static_cast<std::size_t>(bytes));
  return made;
}

Operand Names::fixed(Fixed::Kind kind, std::uint64_t value, int bytes) {
  Operand& known = fixed_[{static_cast<int>(kind), value, bytes}];
  if (known.at < 0) {
    known = place(bytes);
    made_.fixed.push_back({kind, value, known});
  }
  return known;
}

void Names::put_shared(const Variable& v) {
  made_.static_shared = aligned(made_.static_shared, v.alignment);
  shared_[v.name] = made_.static_shared;
  made_.static_shared += v.bytes;
}

void Names::put_local(const Variable& v, const std::string& of) {
  made_.local_bytes = aligned(made_.local_bytes, std::max<std::size_t>(v.alignment, 8));
  local_[of + v.name] = made_.local_bytes;
  made_.local_bytes += v.bytes;
}

void Names::put_parameters(const Function& entry) {
  for (const Variable& v : entry.parameters) {
    const std::size_t at = aligned(made_.parameter_bytes, v.alignment);
    kernel_parameters_[v.name] = at;
    made_.parameter_at.push_back(at);
    made_.parameter_size.push_back(v.bytes);
    made_.parameter_bytes = at + v.bytes;
  }
}

void Names::end_shared() {
  constexpr std::size_t kAlignment = 128;
  made_.dynamic_at = aligned(made_.static_shared, kAlignment);
  for (const std::size_t fixed : dynamic_) made_.fixed[fixed].value = made_.dynamic_at;
}

void Names::declare(const Registers& r) {
  if (r.count == 0) scopes_.back()[r.name] = place(r.bytes);
  for (int i = 0; i < r.count; ++i) scopes_.back()[fmt::format("{}{}", r.name, i)] = place(r.bytes);
}

const Operand* Names::register_of(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(name); found != scope->end()) return &found->second;
  return nullptr;
}

std::optional<Operand> Names::special(const std::string& name, int bytes) {
  static const std::map<std::string, Fixed::Kind> kinds = {{"%tid", Fixed::Kind::Thread},
                                                           {"%ntid", Fixed::Kind::Threads},
                                                           {"%ctaid", Fixed::Kind::Block},
                                                           {"%nctaid", Fixed::Kind::Blocks}};
  const std::vector<std::string> parts = parts_of(name);
  if (const auto found = kinds.find(parts[0]); found != kinds.end() && parts.size() == 2)
    return fixed(found->second, static_cast<std::uint64_t>(parts[1][0] - 'x'), bytes);
  if (name == "%laneid") return fixed(Fixed::Kind::Lane, 0, bytes);
  if (name == "%warpid") return fixed(Fixed::Kind::Warp, 0, bytes);
  if (name == "%lanemask_lt") return fixed(Fixed::Kind::LaneMaskLess, 0, bytes);
  return std::nullopt;
}

std::optional<Operand> Names::variable(const std::string& name, int bytes) {
  for (const auto* in : {&shared_, &local_, &kernel_parameters_})
    if (const auto found = in->find(name); found != in->end())
      return fixed(Fixed::Kind::Number, found->second, bytes);
  if (const auto found = globals_.find(name); found != globals_.end())
    return fixed(Fixed::Kind::Number, found->second, bytes);
  for (const Variable& v : text_.variables)
    if (v.name == name && v.dynamic) {
      const Operand made = place(bytes);
      dynamic_.push_back(made_.fixed.size());
      made_.fixed.push_back({Fixed::Kind::Number, 0, made});
      return made;
    }
  return std::nullopt;
}

Operand Names::operand(const Statement& s, const std::string& text, int bytes) {
  if (text == "_") return place(bytes);
  if (const Operand* known = register_of(text)) return *known;
  if (const auto found = special(text, bytes)) return *found;
  if (const auto value = number(text, bytes)) return fixed(Fixed::Kind::Number, *value, bytes);
  if (const auto found = variable(text, bytes)) return *found;
  bad(s, "unknown operand " + text);
}

void Names::list(const Statement& s, const std::string& text, int bytes, Instruction& to) {
  if (text.front() == '{') {
    for (const std::string& one : split_operands(text.substr(1, text.size() - 2)))
      to.operands.push_back(operand(s, one, bytes));
  } else if (const std::size_t bar = text.find('|'); bar != std::string::npos) {
    to.operands.push_back(operand(s, text.substr(0, bar), bytes));
    to.operands.push_back(operand(s, text.substr(bar + 1), 1));
  } else {
    to.operands.push_back(operand(s, text, bytes));
  }
}

void Names::address(const Statement& s, const std::string& text, Instruction& to) {
  if (text.front() != '[') bad(s, "an address is missing");
  const std::string inside = text.substr(1, text.size() - 2);
  const std::size_t plus = inside.find('+');
  std::string base = inside.substr(0, plus);
  if (plus != std::string::npos) to.offset = std::atoll(inside.c_str() + plus + 1);
  to.address = static_cast<int>(to.operands.size());
  if (to.space == Space::Parameter && kernel_parameters_.count(base) == 0 &&
      register_of(base) == nullptr)
    to.space = Space::Local;  // a parameter of a call
  to.operands.push_back(operand(s, base, 8));
}

}  // namespace hetu::emulator
