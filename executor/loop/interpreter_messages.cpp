#include <algorithm>

#include "executor/loop/interpreter_impl.h"
#include "graph/base/error.h"

namespace hetu {

// The first receive of the run in this direction that is not posted, as far as the run is known;
// null if there is none.
const Action* Interpreter::Impl::next_receive(Way& way, int& raised) const {
  Cursor& next = way.next;
  while (next.part < 3) {
    const std::vector<const Action*>& list = way.receives[next.part];
    if (next.part == 1 && (next.repetition >= expected || list.empty())) {
      if (!all_expected) return nullptr;
    } else if (next.index < list.size()) {
      raised = next.part == 0 ? 0 : next.part == 1 ? next.repetition * row.shift : drain_raised();
      return list[next.index];
    } else if (next.part == 1) {
      ++next.repetition;
      next.index = 0;
      continue;
    }
    ++next.part;
    next.index = 0;
  }
  return nullptr;
}

// Posts receives of a direction in row order, up to the window, as far as the stages have room for
// them. Neither direction waits for the other's room.
void Interpreter::Impl::post_ahead(Way& way) {
  const auto window = static_cast<std::size_t>(std::max(1, links.receive_window));
  int raised = 0;
  while (way.posted.size() < window) {
    const Action* action = next_receive(way, raised);
    if (action == nullptr) return;
    Instr instr = action->instr;
    instr.micro += raised;
    const std::optional<Buffer> buffer = stages.in_buffer(instr);
    if (!buffer) return;
    // Both ends name a message by the kind of its SEND.
    const Kind kind = instr.kind == Kind::RecvForward ? Kind::SendForward : Kind::SendBackward;
    const comm::Tag tag = comm::make_tag(static_cast<int>(kind), action->tag_stage, instr.micro,
                                         action->tag_part, step.load());
    way.posted.push_back(links.transport.recv(action->peer, tag, buffer->data, buffer->bytes));
    ++way.next.index;
  }
}

void Interpreter::Impl::await_receive(const Instr& instr) {
  start_due_sends(true);
  auto& posted = way_of(instr.kind).posted;
  if (posted.empty())
    fail(Code::Internal, "{} is reached, and the stages have no buffer for it",
         hetu::describe(instr, step_of(instr)));
  const std::unique_ptr<comm::Request> request = std::move(posted.front());
  posted.pop_front();
  links.transport.wait(*request, [&] { return hetu::describe(instr, step_of(instr)); });
  stages.received(instr, request->completed_ns());
}

void Interpreter::Impl::start_send(const Action& action, const Instr& instr) {
  reap_sends();
  due.push_back({&action, instr, stages.out_buffer(instr)});
  start_due_sends(false);
}

// Sends whose bytes are there; with `wait` all of them, before this worker waits for another one:
// what stands before them on the device waits for nobody.
void Interpreter::Impl::start_due_sends(bool wait) {
  while (!due.empty() && (wait || due.front().buffer.ready.done())) {
    due.front().buffer.ready.wait();
    post_send(due.front());
    due.pop_front();
  }
}

void Interpreter::Impl::post_send(const Due& d) {
  const comm::Tag tag = comm::make_tag(static_cast<int>(d.instr.kind), d.action->tag_stage,
                                       d.instr.micro, d.action->tag_part, step.load());
  sends.push_back({links.transport.send(d.action->peer, tag, d.buffer.data, d.buffer.bytes),
                   d.buffer.data, d.instr, step_of(d.instr)});
}

void Interpreter::Impl::await_send(Sending& sending) {
  links.transport.wait(*sending.request,
                       [&] { return hetu::describe(sending.instr, sending.step); });
}

void Interpreter::Impl::reap_sends() {
  std::erase_if(sends, [&](Sending& s) {
    if (!s.request->done()) return false;
    await_send(s);  // throws if it has failed
    return true;
  });
}

void Interpreter::Impl::await_sends_of(const void* address) {
  start_due_sends(true);
  std::erase_if(sends, [&](Sending& s) {
    if (s.address != address) return false;
    await_send(s);
    return true;
  });
}

void Interpreter::Impl::before_compute(const Instr& instr) {
  if (sends.empty() && due.empty()) return;
  addresses.clear();
  stages.overwrites(instr, addresses);
  for (const void* address : addresses) await_sends_of(address);
}

}  // namespace hetu
