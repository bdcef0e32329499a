// NCCL doesn't report a dead peer: its kernels wait for ever. Each group therefore posts a receive
// per member that no one answers (a watch). It fails when the transport notices the member's death,
// and then the communicator is aborted. All calls are non-blocking, so that every wait can check
// the watches, the deadline and given_up.
#include "executor/direct/nccl.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "net/transport/tag_kinds.h"

namespace hetu::comm {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// A worker that has finished may leave before its last bytes arrive here.
constexpr std::int64_t kGrace = kSecond;

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

/// Returns the tag of a group's messages. It depends on the group, so that groups that share two
/// workers don't mix up their messages.
Tag group_tag(const Group& group, int part) {
  std::uint32_t mixed = 2166136261U;
  for (const int worker : group) mixed = (mixed ^ static_cast<std::uint32_t>(worker)) * 16777619U;
  return make_tag(kNcclTag, static_cast<int>(mixed & 0x3fff), 0, part, 0);
}

}  // namespace

NcclGroup::NcclGroup(Transport& transport, const NcclLibrary& library, Group group,
                     const NcclUniqueId& id, WaitPurpose what, NcclEnds ends)
    : transport_(transport), library_(library), group_(std::move(group)), ends_(ends) {
  check_group(transport_, group_);
  for (const int peer : group_) {
    if (peer == transport_.worker()) continue;
    Watch& watch = watches_.emplace_back();
    watch.request = transport_.recv(peer, group_tag(group_, 2), &watch.room, 1, ends_.lost);
  }
  NcclConfig config;
  const int result = library_.comm_init_rank_config(&comm_, static_cast<int>(group_.size()), id,
                                                    rank_of(transport_.worker()), &config);
  try {
    take(result, what);
    until_launched(what);
  } catch (...) {
    abort();
    throw;
  }
}

NcclGroup::~NcclGroup() { abort(); }

// Not ncclCommDestroy(), which waits for the other members; they may keep their communicator for
// longer.
void NcclGroup::abort() {
  // No caller could handle an error.
  if (comm_ != nullptr) static_cast<void>(library_.comm_abort(comm_));
  comm_ = nullptr;
}

int NcclGroup::rank_of(int worker) const {
  const auto at = std::find(group_.begin(), group_.end(), worker);
  require(at != group_.end(), "worker {}: worker {} is not in this NCCL group of {} workers",
          transport_.worker(), worker, group_.size());
  return static_cast<int>(at - group_.begin());
}

void NcclGroup::take(int result, WaitPurpose what) {
  if (result != kNcclSuccess && result != kNcclInProgress) failed(result, what);
}

const NcclGroup::Watch* NcclGroup::lost() const {
  for (const Watch& watch : watches_)
    if (watch.request->failed()) return &watch;
  return nullptr;
}

// NCCL reports that a link has failed, and the transport reports which worker died. The transport
// may notice the death a little later.
void NcclGroup::failed(int result, WaitPurpose what) {
  abort();
  const Options& options = transport_.options();
  const double patience_s =
      options.heartbeat_s > 0 ? std::min(options.timeout_s, options.dead_after_s + 1) : 1;
  const std::int64_t limit =
      now_ns() + static_cast<std::int64_t>(patience_s * static_cast<double>(kSecond));
  const auto given_up = [&] { return ends_.given_up != nullptr && ends_.given_up->load(); };
  while (now_ns() < limit && !given_up()) {
    if (const Watch* watch = lost()) transport_.check(*watch->request, what);
    pause();
  }
  fail(Code::Comm, "worker {} in {}: NCCL: {}, and no worker of the group has ended",
       transport_.worker(), what.text(), library_.error_string(result));
}

bool NcclGroup::ready(WaitPurpose what) {
  int result = kNcclSuccess;
  take(library_.comm_get_async_error(comm_, &result), what);
  take(result, what);
  return result == kNcclSuccess;
}

void NcclGroup::until_launched(WaitPurpose what) {
  wait([&] { return ready(what); }, what);
}

void NcclGroup::check_alive(WaitPurpose what) {
  if (ends_.given_up != nullptr && ends_.given_up->load()) abort();
  if (comm_ == nullptr)
    fail(Code::Comm, "worker {} in {}: NCCL: the communicator was aborted", transport_.worker(),
         what.text());
}

void NcclGroup::look(WaitPurpose what) {
  check_alive(what);
  static_cast<void>(ready(what));
  const Watch* const watch = lost();
  if (watch == nullptr) return;
  if (lost_at_ == 0) lost_at_ = now_ns();
  if (now_ns() - lost_at_ <= kGrace) return;
  abort();
  transport_.check(*watch->request, what);
}

// The result of ncclCommFinalize may be "in progress", as for every call.
void NcclGroup::finish(double patience_s) {
  if (comm_ == nullptr) return;
  int result = library_.comm_finalize(comm_);
  const std::int64_t limit =
      now_ns() + static_cast<std::int64_t>(patience_s * static_cast<double>(kSecond));
  while (result == kNcclInProgress && now_ns() < limit) {
    pause();
    if (library_.comm_get_async_error(comm_, &result) != kNcclSuccess) break;
  }
  abort();
}

void NcclGroup::wait(const std::function<bool()>& done, WaitPurpose what) {
  const std::int64_t begin = now_ns();
  const double timeout_s = transport_.options().timeout_s;
  const auto limit = static_cast<std::int64_t>(timeout_s * static_cast<double>(kSecond));
  while (!done()) {
    look(what);
    if (now_ns() - begin > limit) {
      abort();
      fail(Code::Timeout, "worker {} waited {:g} s for {} over NCCL with workers {}",
           transport_.worker(), timeout_s, what.text(), fmt::join(group_, ", "));
    }
    pause();
  }
}

void NcclGroup::exchange(const std::vector<NcclMove>& moves, void* stream, WaitPurpose what) {
  check_alive(what);
  // Checked before the group starts: NCCL can't leave a group without ending it.
  for (const NcclMove& move : moves) {
    require(move.peer != transport_.worker(), "worker {}: a worker cannot send a message to itself",
            move.peer);
    static_cast<void>(rank_of(move.peer));
  }
  take(library_.group_start(), what);
  int first_failure = kNcclSuccess;
  for (const NcclMove& move : moves) {
    const int rank = rank_of(move.peer);
    const int result = move.is_send
                           ? library_.send(move.data, move.bytes, kNcclBytes, rank, comm_, stream)
                           : library_.recv(move.data, move.bytes, kNcclBytes, rank, comm_, stream);
    const bool good = result == kNcclSuccess || result == kNcclInProgress;
    if (!good && first_failure == kNcclSuccess) first_failure = result;
  }
  const int end = library_.group_end();
  take(first_failure, what);
  take(end, what);
  until_launched(what);
}

NcclGroups::NcclGroups(Transport& transport, const NcclLibrary& library, std::size_t most,
                       const std::atomic<bool>* given_up)
    : transport_(transport), library_(library), most_(most), given_up_(given_up) {
  require(most >= 1, "the number of NCCL communicators kept must be at least 1, got {}", most);
}

// Waits for a message. A living member answers soon.
void NcclGroups::wait(Request& request, WaitPurpose what) const {
  if (given_up_ == nullptr) return transport_.wait(request, what);
  const std::int64_t limit = now_ns() + static_cast<std::int64_t>(transport_.options().timeout_s *
                                                                  static_cast<double>(kSecond));
  while (!request.done() && now_ns() < limit) {
    if (given_up_->load())
      fail(Code::Comm, "worker {} in {}: the communicator was aborted", transport_.worker(),
           what.text());
    pause();
  }
  if (!request.done()) transport_.timed_out(request, what);
  transport_.check(request, what);
}

// Decides whether all members still have the group's communicator. The first member collects the
// answers and, if any lacks it, sends the id of a new one.
NcclGroups::Answer NcclGroups::agree(const Group& group, bool lacks, WaitPurpose what) {
  Answer answer;
  char word = lacks ? 1 : 0;
  const int first = group.front();
  const Tag question = group_tag(group, 0), reply = group_tag(group, 1);
  if (transport_.worker() != first) {
    const auto asked = transport_.send(first, question, &word, 1);
    const auto replied = transport_.recv(first, reply, &answer, sizeof answer);
    wait(*asked, what);
    wait(*replied, what);
    return answer;
  }
  answer.anew = word;
  for (const int peer : group) {
    if (peer == first) continue;
    const auto asked = transport_.recv(peer, question, &word, 1);
    wait(*asked, what);
    if (word != 0) answer.anew = 1;
  }
  const int result = answer.anew != 0 ? library_.get_unique_id(&answer.id) : kNcclSuccess;
  if (result != kNcclSuccess)
    fail(Code::Comm, "worker {} in {}: NCCL: {}", first, what.text(),
         library_.error_string(result));
  for (const int peer : group) {
    if (peer == first) continue;
    const auto replied = transport_.send(peer, reply, &answer, sizeof answer);
    wait(*replied, what);
  }
  return answer;
}

NcclGroup& NcclGroups::get(const Group& group, WaitPurpose what) {
  check_group(transport_, group);
  const auto at = std::find_if(kept_.begin(), kept_.end(),
                               [&](const auto& one) { return one->members() == group; });
  const Answer answer = agree(group, at == kept_.end(), what);
  if (answer.anew == 0) {
    kept_.splice(kept_.begin(), kept_, at);
    return *kept_.front();
  }
  if (at != kept_.end()) kept_.erase(at);
  while (kept_.size() >= most_) kept_.pop_back();
  kept_.push_front(std::make_unique<NcclGroup>(transport_, library_, group, answer.id, what,
                                               NcclEnds{nullptr, given_up_}));
  return *kept_.front();
}

}  // namespace hetu::comm
