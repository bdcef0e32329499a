#include "executor/loop/row_messages.h"

#include <algorithm>

#include "base/error.h"

namespace hetu {

RowMessages::RowMessages(const Row& row, Stages& stages, comm::Transport& transport,
                         DirectLinks* direct, int window)
    : row_(row),
      stages_(stages),
      transport_(transport),
      direct_(direct),
      window_(static_cast<std::size_t>(std::max(1, window))) {
  const std::vector<Action>* parts[] = {&row.prologue, &row.body, &row.drain};
  for (int part = 0; part < 3; ++part) {
    for (const Action& action : *parts[part])
      if (is_recv(action.instr.kind))
        direction_of(action.instr.kind).receives[part].push_back(&action);
  }
}

void RowMessages::begin(int step) {
  step_ = step;
  for (Direction& direction : directions_) direction.next = {};
  expected_ = 0;
  all_expected_ = false;
}

void RowMessages::expect(int count, bool all) {
  HETU_ASSERT(count >= expected_ && !all_expected_);
  expected_ = count;
  all_expected_ = all;
}

// Returns the first receive of this direction that is not posted, within the known part of the run;
// null if there is none.
const Action* RowMessages::next_receive(Direction& direction, int& raised) const {
  Cursor& next = direction.next;
  while (next.part < 3) {
    const std::vector<const Action*>& list = direction.receives[next.part];
    if (next.part == 1 && (next.repetition >= expected_ || list.empty())) {
      if (!all_expected_) return nullptr;
    } else if (next.index < list.size()) {
      raised = next.part == 0 ? 0 : next.part == 1 ? next.repetition * row_.shift : drain_raised();
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

// Posts receives of one direction in row order, up to the window, as far as the stages have buffers
// for them. The directions are independent, so that a lack of buffers in one never delays the
// other.
void RowMessages::post_ahead(Direction& direction) {
  int raised = 0;
  while (direction.posted.size() < window_) {
    const Action* action = next_receive(direction, raised);
    if (action == nullptr) return;
    Instr instr = action->instr;
    instr.micro += raised;
    const std::optional<Buffer> buffer = stages_.in_buffer(instr);
    if (!buffer) return;
    // Both ends identify a message by the kind of its SEND.
    const Kind kind = instr.kind == Kind::RecvForward ? Kind::SendForward : Kind::SendBackward;
    const comm::Tag tag = comm::make_tag(static_cast<int>(kind), action->tag_stage, instr.micro,
                                         action->tag_part, step_);
    if (direct_ != nullptr)
      direction.posted.push_back({nullptr, direct_->receive(action->peer, tag, buffer->data,
                                                            buffer->bytes, buffer->ready)});
    else
      direction.posted.push_back({transport_.recv(action->peer, tag, buffer->data, buffer->bytes)});
    ++direction.next.index;
  }
}

void RowMessages::await_receive(const Instr& instr) {
  start_due_sends(true);
  auto& posted = direction_of(instr.kind).posted;
  if (posted.empty())
    fail(Code::Internal, "{}: the stages have no buffer for this message",
         describe(instr, step_of(instr)));
  Message message = std::move(posted.front());
  posted.pop_front();
  stages_.received(instr, wait(message, [&] { return describe(instr, step_of(instr)); }));
}

// Returns the time at which the message was complete.
std::int64_t RowMessages::wait(Message& message, comm::WaitPurpose what) {
  if (!message.request) return direct_->wait(message.end, what);
  transport_.wait(*message.request, what);
  return message.request->completed_ns();
}

void RowMessages::send(const Action& action, const Instr& instr) {
  reap_sends();
  due_.push_back({&action, instr, stages_.out_buffer(instr)});
  start_due_sends(direct_ != nullptr);
}

void RowMessages::start_due_sends(bool wait) {
  while (!due_.empty() && (wait || due_.front().buffer.ready.done())) {
    if (direct_ == nullptr) due_.front().buffer.ready.wait();
    post_send(due_.front());
    due_.pop_front();
  }
}

void RowMessages::post_send(const Due& d) {
  const comm::Tag tag = comm::make_tag(static_cast<int>(d.instr.kind), d.action->tag_stage,
                                       d.instr.micro, d.action->tag_part, step_);
  Message message;
  if (direct_ != nullptr)
    message.end = direct_->send(d.action->peer, tag, d.buffer.data, d.buffer.bytes, d.buffer.ready);
  else
    message.request = transport_.send(d.action->peer, tag, d.buffer.data, d.buffer.bytes);
  sends_.push_back({std::move(message), d.buffer.data, d.instr, step_of(d.instr)});
}

void RowMessages::await_send(Sending& sending) {
  wait(sending.message, [&] { return describe(sending.instr, sending.step); });
}

void RowMessages::reap_sends() {
  std::erase_if(sends_, [&](Sending& s) {
    if (!s.message.done()) return false;
    await_send(s);  // throws if it has failed
    return true;
  });
}

void RowMessages::await_sends_of(const void* address) {
  start_due_sends(true);
  std::erase_if(sends_, [&](Sending& s) {
    if (s.address != address) return false;
    await_send(s);
    return true;
  });
}

void RowMessages::await_room(const Instr& compute) {
  if (sends_.empty() && due_.empty()) return;
  addresses_.clear();
  stages_.overwrites(compute, addresses_);
  for (const void* address : addresses_) await_sends_of(address);
}

bool RowMessages::arrived(Kind recv, std::size_t count) {
  Direction& direction = direction_of(recv);
  post_ahead(direction);
  if (direction.posted.size() < count) return false;
  return std::all_of(direction.posted.begin(),
                     direction.posted.begin() + static_cast<std::ptrdiff_t>(count),
                     [](const Message& message) { return message.done(); });
}

bool RowMessages::has_room(const Instr& compute) {
  start_due_sends(true);
  reap_sends();
  addresses_.clear();
  stages_.overwrites(compute, addresses_);
  return std::none_of(sends_.begin(), sends_.end(), [&](const Sending& s) {
    return std::find(addresses_.begin(), addresses_.end(), s.address) != addresses_.end();
  });
}

void RowMessages::finish() {
  start_due_sends(true);
  for (Sending& sending : sends_) await_send(sending);
  sends_.clear();
}

}  // namespace hetu
