// The definition of instructions that only compute: a function of one lane's numbers, by opcode.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tests/emulator/warp.h"

namespace hetu::emulator {

using Forms = std::map<std::string, Form>;

template <class F, class D, class... S>
struct InLanes {
  template <std::size_t... I>
  static void run(Warp& warp, const Instruction& in, std::uint32_t lanes,
                  std::index_sequence<I...>) {
    D* const to = warp.at<D>(in.operands[0]);
    [[maybe_unused]] const std::tuple<const S*...> from(warp.at<S>(in.operands[1 + I])...);
    D made[kLanes];
    if (lanes == kAllLanes) {
      for (int lane = 0; lane < kLanes; ++lane) made[lane] = F()(std::get<I>(from)[lane]...);
      std::copy(made, made + kLanes, to);
      return;
    }
    for (int lane = 0; lane < kLanes; ++lane)
      if ((lanes >> lane & 1) != 0) to[lane] = F()(std::get<I>(from)[lane]...);
  }
  static void meaning(Warp& warp, const Instruction& in, std::uint32_t lanes) {
    run(warp, in, lanes, std::index_sequence_for<S...>());
  }
};

/// Defines D opcode(S...), with bool for predicates.
template <class D, class... S, class F>
void define(Forms& forms, const std::string& opcode, F) {
  static_assert(sizeof(bool) == 1);
  forms[opcode] = {&InLanes<F, D, S...>::meaning,
                   {static_cast<int>(sizeof(D)), static_cast<int>(sizeof(S))...}};
}

/// Returns the definition of an opcode, or null if it is not supported.
const Form* find_form(const std::string& opcode);

void define_integers(Forms& forms);
void define_floats(Forms& forms);
void define_conversions(Forms& forms);

}  // namespace hetu::emulator
