// RunPolicy::ForwardBeforeLateGradient: instructions that a worker runs before their position in
// the row.
//
// When a recompute is next and the gradient for its backward has not arrived, the worker runs the
// next forward of the row instead, if its input has arrived and its output has a free buffer. In a
// row "R0 B0 F3", with the gradient of B0 late and the input of F3 present, the order becomes F3 R0
// B0.
//
// An instruction that runs early never waits. At every moment the run is therefore at least as far
// as one in row order, and it ends whenever that one does. Source: Athlur et al. 2022 (Varuna),
// section 3.2.
#include <algorithm>

#include "executor/loop/interpreter_impl.h"

namespace hetu {
namespace {

// The instructions [begin, end) of a step, a forward with its messages.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

}  // namespace

void Interpreter::Impl::run_by_rule() {
  const std::vector<Action>& turns = row.drain;
  const auto kind = [&](std::size_t at) { return turns[at].instr.kind; };
  const auto run_span = [&](Span span) {
    for (std::size_t at = span.begin; at < span.end; ++at) run(turns[at], 0);
  };
  // Returns the next forward at or after `at` with its receives directly before and its sends
  // directly after it; empty if there is none.
  const auto next_forward = [&](std::size_t at) {
    while (at < turns.size() && kind(at) != Kind::Forward) ++at;
    Span span{at, std::min(at + 1, turns.size())};
    while (span.begin > 0 && kind(span.begin - 1) == Kind::RecvForward) --span.begin;
    while (span.end < turns.size() && kind(span.end) == Kind::SendForward) ++span.end;
    return span;
  };
  std::vector<bool> gone(turns.size(), false);
  std::size_t ahead = 0;  // end of the last forward that ran early
  for (std::size_t at = 0; at < turns.size(); ++at) {
    if (gone[at]) continue;
    std::size_t gradients = 0;  // gradients received by the backward after this recompute
    if (kind(at) == Kind::Recompute)
      while (kind(at + 1 + gradients) == Kind::RecvBackward) ++gradients;
    while (gradients > 0 && !messages.arrived(Kind::RecvBackward, gradients)) {
      const Span first = next_forward(std::max(ahead, at));
      if (first.begin >= turns.size()) break;
      std::size_t forward = first.begin;
      while (kind(forward) != Kind::Forward) ++forward;
      if (!messages.arrived(Kind::RecvForward, forward - first.begin) ||
          !messages.has_room(turns[forward].instr))
        break;
      run_span(first);
      std::fill(gone.begin() + static_cast<std::ptrdiff_t>(first.begin),
                gone.begin() + static_cast<std::ptrdiff_t>(first.end), true);
      ahead = first.end;
    }
    run_span({at, at + 1});
  }
}

}  // namespace hetu
