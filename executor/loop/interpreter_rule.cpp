// RunPolicy::ForwardBeforeLateGradient: what a worker does before its turn. Nothing that waits: so
// a run is at every moment further than one in row order, and ends wherever that does.
#include <algorithm>

#include "executor/loop/interpreter_impl.h"

namespace hetu {
namespace {

// Turns [begin, end) of a step.
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
  // A forward behind `at` with its messages, which stand around it; empty if there is none.
  const auto next_forward = [&](std::size_t at) {
    while (at < turns.size() && kind(at) != Kind::Forward) ++at;
    Span span{at, std::min(at + 1, turns.size())};
    while (span.begin > 0 && kind(span.begin - 1) == Kind::RecvForward) --span.begin;
    while (span.end < turns.size() && kind(span.end) == Kind::SendForward) ++span.end;
    return span;
  };
  std::vector<bool> gone(turns.size(), false);
  std::size_t ahead = 0;  // behind what has gone first
  for (std::size_t at = 0; at < turns.size(); ++at) {
    if (gone[at]) continue;
    std::size_t gradients = 0;  // that the backward behind this recompute receives
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
