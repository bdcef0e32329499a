#include "ps/client/client_state.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace hetu::ps::client {

namespace {

std::chrono::duration<double> seconds(double s) { return std::chrono::duration<double>(s); }

// A random 64-bit number identifies the client to all servers, also to one that restarts.
std::uint64_t draw_session() {
  std::random_device draw;
  return static_cast<std::uint64_t>(draw()) << 32 | draw();
}

}  // namespace

ClientState::ClientState(ParameterOptions options, std::vector<std::string> servers)
    : options_(options) {
  const std::uint64_t session = draw_session();
  const int count = static_cast<int>(servers.size());
  for (int s = 0; s < count; ++s) {
    const server::Hello hello{session, options.worker, s, count, false};
    lines_.emplace_back(std::move(servers[static_cast<std::size_t>(s)]), hello);
  }
}

std::string ClientState::who() const { return fmt::format("worker {}", options_.worker); }

void ClientState::throw_if_dead() const {
  if (dead_) throw Error(code_, failure_);
}

OpenTable& ClientState::table(int number) {
  require(number >= 0 && static_cast<std::size_t>(number) < tables_.size(),
          "{} has opened {} tables, so there is no table {}", who(), tables_.size(), number);
  return tables_[static_cast<std::size_t>(number)];
}

void ClientState::put_all(std::vector<Addressed> messages) {
  for (Addressed& one : messages) {
    line(one.server).put(std::move(one.message), std::move(one.payload));
  }
}

void ClientState::put_updates(std::vector<Addressed> updates) {
  for (Addressed& one : updates) {
    line(one.server).put_update(std::move(one.message), std::move(one.payload));
    ++unacknowledged_;
  }
}

void check_table(const Table& about, int member) {
  require(!about.name.empty() && about.name.size() <= server::kLongestName,
          "a table's name must have 1 to {} characters, not {}", server::kLongestName,
          about.name.size());
  require(about.elements >= 1 && about.elements <= server::kMostElements,
          "table \"{}\" must have 1 to {} elements, not {}", about.name, server::kMostElements,
          about.elements);
  require(about.members >= 1 && about.members <= server::kMostMembers,
          "table \"{}\" must have 1 to {} members, not {}", about.name, server::kMostMembers,
          about.members);
  require(member >= 0 && member < about.members, "a member of table \"{}\" must be 0 to {}, not {}",
          about.name, about.members - 1, member);
  const std::string fault = fault_of(about.update_rule(), about.elements);
  require(fault.empty(), "table \"{}\": {}", about.name, fault);
}

namespace {

void check_first(const Table& about, const float* initial, const OptimizerStates* first) {
  require(initial != nullptr, "table \"{}\" is opened without initial values", about.name);
  if (first == nullptr) return;
  const auto states = static_cast<std::size_t>(about.update_rule().planes()) - 1;
  require(first->states.size() == states,
          "table \"{}\" ({}) has {} optimizer states, but is opened with {}", about.name,
          describe(about.update_rule()), states, first->states.size());
  for (const std::vector<float>& state : first->states) {
    require(static_cast<std::int64_t>(state.size()) == about.elements,
            "a state of table \"{}\" must have its {} elements, not {}", about.name, about.elements,
            state.size());
  }
  require(first->updates >= 0, "the number of updates of table \"{}\" must be at least 0, not {}",
          about.name, first->updates);
}

}  // namespace

int ClientState::open(const Table& about, int member, const float* initial,
                      const OptimizerStates* first) {
  check_table(about, member);
  check_first(about, initial, first);
  std::unique_lock lock(mutex_);
  throw_if_dead();
  OpenTable& opened =
      tables_.emplace_back(number_of_next(), about, static_cast<int>(lines_.size()));
  opened.initial = initial;
  opened.first = first;
  return open_as(member, lock, opened);
}

int ClientState::number_of_next() const {
  const int number = static_cast<int>(tables_.size());
  require(number < server::kMostTables, "{} opens more than {} tables", who(), server::kMostTables);
  return number;
}

int ClientState::open_as(int member, std::unique_lock<std::mutex>& lock, OpenTable& opened) {
  std::vector<Addressed> joins = opened.joins(member);
  opened.opening = static_cast<int>(joins.size());
  put_all(std::move(joins));
  lock.unlock();
  ring();
  lock.lock();
  const auto is_open = [&] { return dead_ || opened.opening == 0 || !opened.failure.empty(); };
  const bool in_time = changed_.wait_for(lock, seconds(options_.timeout_s), is_open);
  opened.initial = nullptr;
  opened.first = nullptr;
  if (!in_time) {
    fail(Code::Timeout, "{} waited {:g} s (HETU_TIMEOUT) for {} to open table \"{}\"", who(),
         options_.timeout_s, busy_servers(), opened.about.name);
  }
  throw_if_dead();
  if (!opened.failure.empty()) throw Error(Code::InvalidArgument, opened.failure);
  return opened.number;
}

std::vector<float> ClientState::values_to_push(int number) {
  const std::lock_guard lock(mutex_);
  return table(number).spare->take(static_cast<std::size_t>(table(number).about.elements));
}

void ClientState::push(int number, std::vector<float> delta) {
  {
    const std::lock_guard lock(mutex_);
    const Table& about = table(number).about;
    require(!about.optimizer, "table \"{}\" has an optimizer ({}); push gradients with a rate",
            about.name, describe(about.update_rule()));
  }
  push_all(number, std::move(delta), 0);
}

void ClientState::push(int number, std::vector<float> gradient, double rate) {
  {
    const std::lock_guard lock(mutex_);
    const Table& about = table(number).about;
    require(about.optimizer.has_value(),
            "table \"{}\" has no optimizer; push changes to it, without a rate", about.name);
    require(std::isfinite(rate) && rate >= 0,
            "the rate of an update of table \"{}\" must be finite and at least 0, not {}",
            about.name, rate);
  }
  push_all(number, std::move(gradient), rate);
}

void ClientState::push_all(int number, std::vector<float> delta, double rate) {
  {
    const std::lock_guard lock(mutex_);
    throw_if_dead();
    OpenTable& to = table(number);
    require(!to.is_sparse(), "table \"{}\" is sparse; push rows of it", to.about.name);
    require(static_cast<std::int64_t>(delta.size()) == to.about.elements,
            "an update of table \"{}\" must have its {} elements, not {}", to.about.name,
            to.about.elements, delta.size());
    require(!left_, "{} pushes to table \"{}\" after it has left", who(), to.about.name);
    put_updates(to.update(std::move(delta), rate));
  }
  ring();
}

void ClientState::pull(int number, std::int64_t least, float* into, std::int64_t to_come) {
  ask(number, least, into, to_come, 0);
}

void ClientState::ask(int number, std::int64_t least, float* into, std::int64_t to_come,
                      int plane) {
  if (is_sparse(number)) {
    require(to_come == 0, "a pull of sparse table \"{}\" cannot wait for later pushes",
            table(number).about.name);
    return ask_all_rows(number, least, into, plane);
  }
  {
    const std::lock_guard lock(mutex_);
    throw_if_dead();
    OpenTable& from = table(number);
    require(!left_, "{} pulls table \"{}\" after it has left", who(), from.about.name);
    require(!from.pull, "{} pulls table \"{}\" while a pull of it is open; wait for that first",
            who(), from.about.name);
    put_all(from.begin_pull(least, into, from.clock + to_come, plane));
  }
  ring();
}

Pulled ClientState::wait(int number, const std::function<std::string()>& what) {
  std::unique_lock lock(mutex_);
  throw_if_dead();
  OpenTable& from = table(number);
  require(from.pull.has_value(), "{} waits for table \"{}\" without a pull to wait for", who(),
          from.about.name);
  const auto is_done = [&] {
    return dead_ || from.pull->missing == 0 || !from.pull->failure.empty();
  };
  std::string late;
  if (!changed_.wait_for(lock, seconds(options_.timeout_s), is_done)) {
    late = whom_it_waits_for(lock, number);
  }
  const bool is_late = !is_done();
  // A pull ends here in any case. Pulls that a server has not answered must not be sent again.
  const OpenTable::OpenPull pull = std::move(*from.pull);
  from.pull.reset();
  for (Line& line : lines_) {
    line.settle([&](const server::FromClient& message) {
      const auto* asked = std::get_if<server::Pull>(&message);
      const auto* rows = std::get_if<server::PullRows>(&message);
      return (asked != nullptr && asked->table == number) ||
             (rows != nullptr && rows->table == number);
    });
  }
  throw_if_dead();
  if (!pull.failure.empty()) throw Error(Code::Comm, pull.failure);
  if (is_late) {
    fail(Code::Timeout, "{} waited {:g} s (HETU_TIMEOUT) for table \"{}\" ({}): {}", who(),
         options_.timeout_s, from.about.name, what ? what() : "no details are known", late);
  }
  return pull.found;
}

// Each plane is a pull of its own, so that another member could push in between. The counts of
// updates show whether one did.
OptimizerStates ClientState::states(int number, float* values) {
  std::int64_t elements = 0;
  int planes = 1;
  {
    const std::lock_guard lock(mutex_);
    const Table& about = table(number).about;
    elements = about.elements;
    planes = about.update_rule().planes();
  }
  OptimizerStates found;
  found.updates = -1;
  for (int plane = values != nullptr || planes == 1 ? 0 : 1; plane < planes; ++plane) {
    std::vector<float> state(plane == 0 && values != nullptr ? 0 : elements);
    ask(number, kAnyClock, plane == 0 && values != nullptr ? values : state.data(), 0, plane);
    const Pulled pulled = wait(number, [] { return std::string("its states"); });
    for (const std::int64_t updates : pulled.updates) {
      if (found.updates < 0) found.updates = updates;
      if (updates != found.updates) {
        fail(Code::Internal,
             "{} read the states of table \"{}\" while other workers pushed to it: "
             "some after {} updates, some after {}",
             who(), table(number).about.name, found.updates, updates);
      }
    }
    if (plane > 0) found.states.push_back(std::move(state));
  }
  return found;
}

// Asks the server of the first missing part which members it waits for. Waits a second for the
// answer, which is plenty for a server that is alive.
std::string ClientState::whom_it_waits_for(std::unique_lock<std::mutex>& lock, int number) {
  OpenTable& from = table(number);
  const auto [server, part] = from.first_missing();
  Line& line = this->line(server);
  line.put_once(server::Who{number, part, from.pull->least});
  lock.unlock();
  ring();
  lock.lock();
  const auto knows = [&] { return dead_ || from.pull->missing == 0 || from.pull->waits; };
  changed_.wait_for(lock, seconds(kHeartbeatS), knows);
  if (!from.pull->waits) return fmt::format("{} does not answer", line.name());
  if (from.pull->waits->empty()) return fmt::format("{} has not sent all of it yet", line.name());
  return "for " + *from.pull->waits;
}

std::string ClientState::busy_servers() const {
  std::string names;
  for (const Line& line : lines_) {
    if (!line.is_idle()) names += (names.empty() ? "" : ", ") + line.name();
  }
  return names.empty() ? "the other members" : names;
}

void ClientState::greet() {
  ring();
  std::unique_lock lock(mutex_);
  const auto is_new = [](const Line& line) { return !line.is_known(); };
  const auto is_done = [&] { return dead_ || std::none_of(lines_.begin(), lines_.end(), is_new); };
  if (!changed_.wait_for(lock, seconds(options_.timeout_s), is_done)) {
    fail(Code::Timeout, "{} did not answer {} in {:g} s (HETU_TIMEOUT)",
         std::find_if(lines_.begin(), lines_.end(), is_new)->name(), who(), options_.timeout_s);
  }
  throw_if_dead();
}

bool ClientState::is_known(int server) const {
  const std::lock_guard lock(mutex_);
  return lines_[static_cast<std::size_t>(server)].is_known();
}

void ClientState::flush() {
  std::unique_lock lock(mutex_);
  const auto is_done = [&] { return dead_ || unacknowledged_ == 0; };
  if (!changed_.wait_for(lock, seconds(options_.timeout_s), is_done)) {
    fail(Code::Timeout, "{} waited {:g} s (HETU_TIMEOUT) for {} to take its updates", who(),
         options_.timeout_s, busy_servers());
  }
  throw_if_dead();
}

// Leave is sent after all updates, and a server that misses some of them waits for these first.
void ClientState::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (left_ || dead_) return;
    left_ = true;
    leaving_ = static_cast<int>(lines_.size());
    for (Line& line : lines_) line.put(server::Leave{line.updates()});
  }
  ring();
  std::unique_lock lock(mutex_);
  // Without an answer, the servers notice this worker's silence. Nothing more can be done here.
  changed_.wait_for(lock, seconds(std::min(options_.timeout_s, kDeadAfterS)),
                    [&] { return dead_ || leaving_ == 0; });
}

void ClientState::die(Code code, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return;
    dead_ = true;
    code_ = code;
    failure_ = text;
  }
  changed_.notify_all();
}

bool ClientState::has_ended() const {
  const std::lock_guard lock(mutex_);
  return dead_ || (left_ && leaving_ == 0);
}

bool ClientState::is_idle() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.is_idle(); });
}

}  // namespace hetu::ps::client
