// A channel's protocol. NCCL requires that all workers start the operations of a communicator in
// the same order, but workers reach them in different orders. Example with leader 0 and member 1,
// operations a and b:
//   1 -> 0  "b is ready"          (when 1's memory for b is ready)
//   0 -> 1  "b is number 0", id   (once 0 is ready for b, too)
//   0, 1    enqueue b
// Operation a gets number 1 in the same manner. A member enqueues only the operation whose number
// is next, so all use the order of the leader. Since the leader numbers an operation only when
// every member is ready, no GPU waits for a worker that isn't.
#include "executor/direct/channel.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace hetu {
namespace {

// Longest time at the end for NCCL to send what it still holds.
constexpr double kPatience_s = 2;
// Interval between checks of NCCL and the members while an operation is in progress.
constexpr auto kLook = std::chrono::milliseconds(20);

bool all_done(const std::vector<std::unique_ptr<comm::Request>>& requests) {
  return std::all_of(requests.begin(), requests.end(), [](const auto& r) { return r->done(); });
}

void wake(comm::Signal& signal) {
  {
    const std::lock_guard lock(signal.mutex);
    ++signal.count;
  }
  signal.changed.notify_all();
}

}  // namespace

Channel::Channel(comm::Transport& transport, const comm::NcclLibrary& library, Device& device,
                 comm::Group members, int leader, std::string name)
    : transport_(transport),
      library_(library),
      device_(device),
      members_(std::move(members)),
      leader_(leader),
      name_(std::move(name)),
      signal_(std::make_shared<comm::Signal>()),
      queue_(device.open_messages()) {
  comm::check_group(transport_, members_);
  HETU_ASSERT(queue_ && std::binary_search(members_.begin(), members_.end(), leader_));
  thread_ = std::thread([this] { serve(); });
}

Channel::~Channel() {
  stop_ = true;
  wake(*signal_);
  thread_.join();
}

Event Channel::give(Work work) {
  Piece piece;
  piece.work = std::move(work);
  piece.coming = std::make_shared<Event::Coming>();
  const Event end(piece.coming);
  {
    const std::lock_guard lock(mutex_);
    if (error_)
      piece.coming->complete(comm::now_ns(), error_);
    else
      given_.push_back(std::move(piece));
  }
  wake(*signal_);
  return end;
}

std::byte* Channel::room(std::int64_t bytes) {
  if (bytes <= room_bytes_) return room_.get();
  queue_->record().wait();  // earlier operations may still use it
  room_.reset();
  room_bytes_ = 0;
  room_ = device_.alloc_for(bytes, name_ + ": the chunks of other workers");
  room_bytes_ = bytes;
  device_.queue().record().wait();  // zeros are written by that queue
  return room_.get();
}

// The channel's thread. It ends when the channel stops or an operation fails.
void Channel::serve() {
  std::exception_ptr why;
  try {
    queue_->take_thread();
    work_until_stopped();
    if (group_ && pending_.empty() && put_.empty()) group_->finish(kPatience_s);
    why = std::make_exception_ptr(Error(Code::Comm, name_ + " were aborted"));
  } catch (...) {
    why = std::current_exception();
  }
  give_up_all(why);
}

void Channel::give_up_all(const std::exception_ptr& why) {
  group_.reset();  // operations on the queue end
  {
    const std::lock_guard lock(mutex_);
    error_ = why;
    pending_.splice(pending_.end(), given_);
  }
  for (Piece& piece : put_) piece.coming->complete(comm::now_ns(), why);
  for (Piece& piece : pending_) piece.coming->complete(comm::now_ns(), why);
}

// Reads the signal's count before it looks for work, so that news in between ends the next wait at
// once.
void Channel::work_until_stopped() {
  while (!stop_) {
    std::uint64_t seen = 0;
    {
      const std::lock_guard lock(signal_->mutex);
      seen = signal_->count;
    }
    std::list<Piece> fresh;
    {
      const std::lock_guard lock(mutex_);
      fresh.swap(given_);
    }
    while (!fresh.empty()) {
      pending_.splice(pending_.end(), fresh, fresh.begin());
      begin(pending_.back());
    }
    put_all_due();
    end_all_done();
    std::unique_lock lock(signal_->mutex);
    const auto woken = [&] { return stop_ || signal_->count != seen; };
    if (put_.empty())
      signal_->changed.wait(lock, woken);
    else
      signal_->changed.wait_for(lock, kLook, woken);
  }
}

void Channel::wake_at(const Event& event) const {
  if (!event.done()) event.then([signal = signal_] { wake(*signal); });
}

// Requests the messages about an operation.
void Channel::begin(Piece& piece) {
  wake_at(piece.work.ready);
  if (!leads()) {
    piece.answers.push_back(transport_.recv(leader_, piece.work.tag, &piece.answer,
                                            sizeof piece.answer, signal_.get()));
    return;
  }
  for (const int member : members_) {
    if (member == leader_) continue;
    piece.words.push_back(
        transport_.recv(member, comm::second_phase(piece.work.tag), &piece.word, 1, signal_.get()));
  }
}

void Channel::check(const std::vector<std::unique_ptr<comm::Request>>& requests) const {
  for (const auto& request : requests) transport_.check(*request, [&] { return name_; });
}

// Returns true if all members are ready and it is the operation's turn. Also informs the leader
// when this member becomes ready.
bool Channel::is_due(Piece& piece) {
  check(piece.words);
  check(piece.answers);
  const bool ready = piece.work.ready.done();
  if (leads()) return ready && all_done(piece.words);
  if (ready && !piece.has_asked) {
    piece.work.ready.wait();
    piece.has_asked = true;
    piece.words.push_back(transport_.send(leader_, comm::second_phase(piece.work.tag), &piece.word,
                                          1, signal_.get()));
  }
  return all_done(piece.answers) && piece.answer.number == next_;
}

void Channel::put_all_due() {
  for (auto piece = pending_.begin(); piece != pending_.end();) {
    if (!is_due(*piece)) {
      ++piece;
      continue;
    }
    put(piece);
    piece = pending_.begin();  // the next number may have arrived earlier
  }
}

void Channel::put(std::list<Piece>::iterator at) {
  const auto what = [&] { return name_; };
  put_.push_back(std::move(*at));
  pending_.erase(at);
  Piece& piece = put_.back();
  piece.work.ready.wait();
  if (leads()) {
    if (next_ == 0 && library_.get_unique_id(&id_) != comm::kNcclSuccess)
      fail(Code::Comm, "{}: ncclGetUniqueId failed", name_);
    piece.answer = {next_, id_};
    for (const int member : members_)
      if (member != leader_)
        piece.answers.push_back(transport_.send(member, piece.work.tag, &piece.answer,
                                                sizeof piece.answer, signal_.get()));
  }
  if (next_ == 0)
    group_ = std::make_unique<comm::NcclGroup>(transport_, library_, members_, piece.answer.id,
                                               what, comm::NcclEnds{signal_.get(), &stop_});
  ++next_;
  piece.work.put(*group_, *queue_);
  piece.end = queue_->record();
  wake_at(piece.end);
}

void Channel::end_all_done() {
  while (!put_.empty() && put_.front().end.done()) {
    Piece& piece = put_.front();
    piece.coming->complete(piece.end.wait(), nullptr);
    put_.pop_front();
  }
  if (!put_.empty()) group_->look([&] { return name_; });
}

}  // namespace hetu
