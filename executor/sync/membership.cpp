// Common work of pipelines that may die one by one. Each step ends with a rendezvous at the
// coordinator, which reports to all workers which pipelines have come and whether the step
// succeeded everywhere. If it failed, a pipeline has died in it, and the remaining ones repeat it.
// For example, pipelines 0, 1 and 2 start a consensus, and 1 dies: the sums of 0 and 2 fail, both
// report it at the rendezvous, learn of the members {0, 2}, and repeat the consensus.
#include "executor/sync/membership.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

constexpr std::uint64_t kLongestText = 16 << 20;  // bytes per text of an exchange

std::string why_lost(int pipeline) { return fmt::format("pipeline {} is lost", pipeline); }

}  // namespace

Membership::Membership(comm::Transport& transport, ps::GroupClient& client, Position position)
    : transport_(transport),
      client_(client),
      position_(std::move(position)),
      living_(position_.workers.size()),
      lost_(position_.workers.size(), false) {
  std::iota(living_.begin(), living_.end(), 0);
  if (may_lose()) client_.on_lost([this](int pipeline) { lose(pipeline); });
}

Membership::~Membership() { client_.on_lost({}); }

// Runs on the client's thread. Sums are notified first: sums started after the links are broken
// must fail, too.
void Membership::lose(int pipeline) {
  {
    const std::lock_guard lock(mutex_);
    lost_.at(pipeline) = true;
    for (comm::Reducer* sums : reducers_)
      sums->lose(position_.workers[pipeline], why_lost(pipeline));
  }
  position_.mesh->lose(position_.workers[pipeline], "is lost with its pipeline");
}

void Membership::follow(comm::Reducer& sums) {
  const std::lock_guard lock(mutex_);
  reducers_.push_back(&sums);
  for (std::size_t d = 0; d < lost_.size(); ++d)
    if (lost_[d]) sums.lose(position_.workers[d], why_lost(static_cast<int>(d)));
}

void Membership::unfollow(comm::Reducer& sums) {
  const std::lock_guard lock(mutex_);
  std::erase(reducers_, &sums);
}

bool Membership::is_broken(const std::vector<int>& pipelines) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(pipelines.begin(), pipelines.end(), [&](int d) { return lost_.at(d); });
}

bool Membership::is_first() const {
  const std::lock_guard lock(mutex_);
  const auto own = lost_.begin() + position_.pipeline;
  return std::find(lost_.begin(), own, false) == own;
}

comm::Group Membership::workers_of(const std::vector<int>& pipelines) const {
  comm::Group workers;
  for (const int d : pipelines) workers.push_back(position_.workers.at(d));
  return workers;
}

ps::Rendezvous Membership::rendezvous(bool ok, bool flag) {
  ps::Rendezvous all = client_.rendezvous(ok, flag, [&] {
    return runs_ == 0 ? "the start of training" : fmt::format("the end of run {}", runs_);
  });
  ++rendezvous_;
  living_ = all.members;
  return all;
}

void Membership::together(const std::string& name, const std::function<void()>& work) {
  for (std::size_t attempt = 0; attempt <= position_.workers.size(); ++attempt) {
    bool ok = true;
    try {
      work();
    } catch (const Error&) {
      if (!is_broken(living_)) throw;
      ok = false;
    }
    if (rendezvous(ok, false).all_ok) return;
  }
  fail(Code::Internal, "{} of stage {} failed more often than there are pipelines", name,
       position_.stage);
}

// Every worker sends to every other, so that no third worker has to forward a text.
std::map<int, std::string> Membership::exchange(const std::string& mine) {
  require(mine.size() <= kLongestText,
          "a text for the other pipelines has {} bytes; at most {} are allowed", mine.size(),
          kLongestText);
  std::map<int, std::string> texts;
  together("an exchange", [&] {
    texts.clear();
    const auto number = static_cast<int>(rendezvous_ & 0x3fff);
    const auto high = static_cast<int>(rendezvous_ >> 14);
    const comm::Tag head = comm::make_tag(kConsensusTag, position_.stage, 0x3ffff, high, number);
    const comm::Tag body = comm::make_tag(kConsensusTag, position_.stage, 0x3fffe, high, number);
    const auto what = [&] {
      return fmt::format("the texts of the copies of stage {}", position_.stage);
    };
    const auto size = static_cast<std::uint64_t>(mine.size());
    for (const int worker : workers_of(living_)) {  // a mesh copies at once; sends to the dead fail
      transport_.send(worker, head, &size, sizeof size);
      transport_.send(worker, body, mine.data(), mine.size());
    }
    for (const int d : living_) {
      std::uint64_t bytes = 0;
      transport_.wait(*transport_.recv(position_.workers.at(d), head, &bytes, sizeof bytes), what);
      if (bytes > kLongestText)
        fail(Code::Comm, "{}: the text of pipeline {} has {} bytes; at most {} are allowed", what(),
             d, bytes, kLongestText);
      std::string text(bytes, '\0');
      transport_.wait(*transport_.recv(position_.workers.at(d), body, text.data(), bytes), what);
      texts[d] = std::move(text);
    }
  });
  return texts;
}

void Membership::in_one_pipeline(const std::function<void()>& work) {
  for (int one = -1; one != living_.front();) {
    one = living_.front();
    if (one == position_.pipeline) work();
    rendezvous(true, false);
  }
}

}  // namespace hetu
