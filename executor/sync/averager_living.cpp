// Pipelines that may die one by one: what those that live do together. Each step ends with a
// rendezvous at the coordinator, where all hear who has come and whether it has worked for
// everyone; if not, somebody has died in it, and those who are left do it again.
#include <algorithm>
#include <cstring>

#include "executor/comm/tag_kinds.h"
#include "executor/sync/averager.h"
#include "graph/base/error.h"

namespace hetu {
namespace {

constexpr std::uint64_t kLongestText = 16 << 20;  // bytes, of an exchange

}  // namespace

// On the client's thread. Sums first: what starts after the links are broken must fail, too.
void Averager::lose(int pipeline) {
  {
    const std::lock_guard lock(mutex_);
    lost_.at(pipeline) = true;
  }
  const int worker = place_.workers.at(pipeline);
  reducer_.lose(worker, fmt::format("pipeline {} is lost", pipeline));
  place_.mesh->lose(worker, "is lost with its pipeline");
}

// Whether one of them is lost, which is why something with all of them has failed.
bool Averager::is_broken(const std::vector<int>& pipelines) {
  const std::lock_guard lock(mutex_);
  return std::any_of(pipelines.begin(), pipelines.end(), [&](int d) { return lost_.at(d); });
}

bool Averager::is_first() {
  const std::lock_guard lock(mutex_);
  const auto own = lost_.begin() + place_.pipeline;
  return std::find(lost_.begin(), own, false) == own;
}

comm::Group Averager::workers_of(const std::vector<int>& pipelines) const {
  comm::Group workers;
  for (const int d : pipelines) workers.push_back(place_.workers.at(d));
  return workers;
}

ps::Rendezvous Averager::rendezvous(bool ok, bool flag) {
  ps::Rendezvous all = client_.rendezvous(ok, flag, [&] {
    return run_ == 0 ? "the start of training" : fmt::format("the end of run {}", run_);
  });
  ++rendezvous_;
  living_ = all.members;
  return all;
}

void Averager::together(const std::string& name, const std::function<void()>& work) {
  for (std::size_t attempt = 0; attempt <= place_.workers.size(); ++attempt) {
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
       place_.stage);
}

bool Averager::any_raises(bool flag) { return rendezvous(true, flag).any_flag; }

// Everyone sends to everyone: nobody needs a third one to be told.
std::map<int, std::string> Averager::exchange(const std::string& mine) {
  require(mine.size() <= kLongestText, "a text of {} bytes for the other pipelines; at most {}",
          mine.size(), kLongestText);
  std::map<int, std::string> texts;
  together("an exchange", [&] {
    texts.clear();
    const auto number = static_cast<int>(rendezvous_ & 0x3fff);
    const auto high = static_cast<int>(rendezvous_ >> 14);
    const comm::Tag head = comm::make_tag(kConsensusTag, place_.stage, 0x3ffff, high, number);
    const comm::Tag body = comm::make_tag(kConsensusTag, place_.stage, 0x3fffe, high, number);
    const auto what = [&] { return fmt::format("what the copies of stage {} say", place_.stage); };
    const auto size = static_cast<std::uint64_t>(mine.size());
    for (const int worker : workers_of(living_)) {  // a mesh copies at once; to the dead it fails
      transport_.send(worker, head, &size, sizeof size);
      transport_.send(worker, body, mine.data(), mine.size());
    }
    for (const int d : living_) {
      std::uint64_t bytes = 0;
      transport_.wait(*transport_.recv(place_.workers.at(d), head, &bytes, sizeof bytes), what);
      if (bytes > kLongestText)
        fail(Code::Comm, "{}: pipeline {} has one of {} bytes; at most {} are right", what(), d,
             bytes, kLongestText);
      std::string text(bytes, '\0');
      transport_.wait(*transport_.recv(place_.workers.at(d), body, text.data(), bytes), what);
      texts[d] = std::move(text);
    }
  });
  return texts;
}

void Averager::in_one_pipeline(const std::function<void()>& work) {
  for (int one = -1; one != living_.front();) {
    one = living_.front();
    if (one == place_.pipeline) work();
    rendezvous(true, false);
  }
}

}  // namespace hetu
