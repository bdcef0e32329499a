// Frames that a client with the job's key may send, by a seed: messages of workers, at the right
// moment or not, and the same with bytes changed, removed and added. Used by the tests of
// ps/server.
#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "ps/server/messages.h"
#include "tests/ps/server/whole_sweep.h"

namespace hetu::ps::server {

/// Damages bytes: changes, removes or adds some, or replaces all of them.
class Damage {
 public:
  explicit Damage(unsigned seed) : draw_(seed) {}

  void hurt(Bytes& bytes) {
    const std::size_t size = bytes.size();
    switch (below(8)) {
      case 0:
        bytes.resize(below(size + 1));
        break;
      case 1:
        bytes.resize(size + 1 + below(64), std::byte(draw_()));
        break;
      case 2:
        bytes.resize(below(100));
        for (std::byte& byte : bytes) byte = std::byte(draw_());
        break;
      case 3:
      case 4: {  // replaces a number by an extreme value
        constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
        constexpr std::int64_t kEnds[] = {0, 1, -1, kMost, -kMost - 1, std::int64_t{1} << 32};
        const std::int64_t end = kEnds[below(std::size(kEnds))];
        const std::size_t width = below(2) == 0 ? 4 : 8;
        if (size >= width) std::memcpy(bytes.data() + below(size - width + 1), &end, width);
        break;
      }
      default:
        for (std::size_t n = size == 0 ? 0 : 1 + below(3); n > 0; --n) {
          bytes[below(size)] = std::byte(draw_());
        }
    }
  }
  std::size_t below(std::size_t n) { return draw_() % n; }
  std::mt19937& draw() { return draw_; }

 private:
  std::mt19937 draw_;
};

/// Several clients that soon break the rules.
class WildFrames {
 public:
  static constexpr int kTables = 5;
  static constexpr int kMembers = 3;
  static constexpr int kSparse = 3;  ///< the first sparse table
  static constexpr std::int64_t kElements = 37;
  static constexpr std::int64_t kRows = 50;
  static constexpr int kWidth = 4;

  WildFrames(unsigned seed, int senders)
      : damage_(seed), senders_(static_cast<std::size_t>(senders)) {}

  struct Frame {
    std::size_t sender = 0;
    std::uint64_t peer = 0;
    Bytes header;
    Bytes payload;
  };
  Frame next() { return next(damage_.below(senders_.size())); }
  Frame next(std::size_t who) {
    Sender& sender = senders_[who];
    if (damage_.below(300) == 0) {
      // The tables end, and others with the same names begin.
      for (Sender& each : senders_) come(each);
    }
    if (sender.session == 0) come(sender);
    Frame frame{who, sender.peer, {}, {}};
    const bool is_first = !sender.has_spoken;
    const FromClient message = speak(sender, static_cast<int>(who % kMembers), frame.payload);
    const std::int64_t serial = damage_.below(2000) == 0 ? 1 + damage_.below(5) : 0;
    frame.header = encode(sender.attempt, message, serial);
    if (is_first) return frame;
    if (damage_.below(3) == 0) damage_.hurt(frame.header);
    if (damage_.below(6) == 0) damage_.hurt(frame.payload);
    return frame;
  }
  /// Handles an answer to a sender: the number of its accepted updates, and whether it has to
  /// reconnect.
  void hear(std::size_t who, const FromServer& message) {
    Sender& sender = senders_[who];
    const auto has = [&](int table, std::int64_t number) {
      if (table < kTables) sender.clock[table] = number;
    };
    if (const auto* pushed = std::get_if<Pushed>(&message)) has(pushed->table, pushed->number);
    if (const auto* pushed = std::get_if<PushedRows>(&message)) has(pushed->table, pushed->number);
    if (std::holds_alternative<Left>(message)) come(sender);
    if (std::holds_alternative<Refusal>(message)) come(sender);
  }
  /// Returns the connections that were abandoned since the last call.
  std::vector<std::uint64_t> take_abandoned() { return std::exchange(abandoned_, {}); }
  Damage& damage() { return damage_; }
  static Join join_of(int table, int member, int members) {
    const bool is_sparse = table >= kSparse;
    Join join{table, fmt::format("w{}", table), kElements, members, member, rule_of(table), 0, {}};
    if (!is_sparse) return join;
    join.elements = kRows * kWidth;
    join.width = kWidth;
    join.first = {{Initializer::Kind::Normal, 0, 1}, 7};
    return join;
  }

 private:
  struct Sender {
    std::uint64_t session = 0;
    std::uint64_t peer = 0;
    int worker = 0;
    std::uint32_t attempt = 1;
    bool has_spoken = false;
    int joined = 0;
    std::int64_t clock[kTables] = {};
    std::int64_t pulls[kTables] = {};
  };

  static UpdateRule rule_of(int table) {
    const auto with = [](Rule rule, OptimizerKind kind) {
      return UpdateRule{rule, ServerOptimizer{settings_of(kind), {{1, 3}}}};
    };
    if (table == 1) return with(Rule::RoundMean, OptimizerKind::Adam);
    if (table == 2) return with(Rule::Each, OptimizerKind::AmsGrad);
    if (table == 4) {
      return {Rule::RoundSum, ServerOptimizer{settings_of(OptimizerKind::AdaGrad), {}}};
    }
    return {};
  }
  void come(Sender& sender) {
    if (sender.peer != 0) abandoned_.push_back(sender.peer);
    sender = {};
    sender.session = ++sessions_;
    sender.peer = sessions_;
    sender.worker = static_cast<int>(sessions_ % 1000);
  }
  std::int64_t some(std::int64_t most) {
    return static_cast<std::int64_t>(damage_.below(static_cast<std::size_t>(most) + 1));
  }
  Bytes floats(std::int64_t count) {
    Bytes bytes(static_cast<std::size_t>(count) * sizeof(float));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(some(100)) - 50;
      std::memcpy(bytes.data() + i * 4, &value, sizeof value);
    }
    return bytes;
  }
  Bytes ids(std::int64_t& count) {
    Bytes bytes;
    count = 0;
    for (std::int64_t id = some(20); id < kRows; id += 1 + some(20), ++count) {
      const auto* data = reinterpret_cast<const std::byte*>(&id);
      bytes.insert(bytes.end(), data, data + sizeof id);
    }
    return bytes;
  }
  Bytes rows(bool counted) {
    std::int64_t count = 0;
    Bytes bytes = ids(count);
    if (counted) bytes.resize(bytes.size() + static_cast<std::size_t>(count) * 4, std::byte{1});
    const Bytes values = floats(count * kWidth);
    bytes.insert(bytes.end(), values.begin(), values.end());
    return bytes;
  }

  FromClient speak(Sender& sender, int member, Bytes& payload) {
    const auto hello = [&](std::uint32_t more) {
      sender.attempt += more;
      const bool is_known = std::exchange(sender.has_spoken, true);
      return Hello{sender.session, sender.worker, 0, 1, is_known};
    };
    if (!sender.has_spoken) return hello(0);
    if (sender.joined < kTables) return join_of(sender.joined++, member, kMembers);
    switch (damage_.below(24)) {
      case 0:
        return hello(static_cast<std::uint32_t>(damage_.below(3)));
      case 1:
        return Status{some(2)};
      case 2:
        return Beat{some(3)};
      case 3:
        return Leave{some(40) == 0 ? some(3) : 1000};
      case 4:
        return join_of(static_cast<int>(some(kTables - 1)), static_cast<int>(some(2)), kMembers);
      default:
        break;
    }
    const int table = static_cast<int>(some(kTables - 1));
    return table < kSparse ? of_parts(sender, table, payload) : of_rows(sender, table, payload);
  }
  FromClient of_parts(Sender& sender, int table, Bytes& payload) {
    const int planes = rule_of(table).planes();
    const std::int64_t clock = sender.clock[table];
    const auto plane = static_cast<int>(some(planes - 1));
    const double rate = table == 0 ? 0 : 0.01;
    switch (damage_.below(10)) {
      case 0:
      case 1:
        payload = floats(kElements);
        return Init{table, 0, plane, std::max(plane + 1, static_cast<int>(1 + some(planes - 1))),
                    3};
      case 2:
      case 3:
        return Pull{table, 0, ++sender.pulls[table], clock - some(3), some(1) * clock, plane};
      case 4:
        return Who{table, 0, some(5)};
      case 5:
        return Got{table, 0, std::max<std::int64_t>(1, sender.pulls[table])};
      default:
        payload = floats(kElements);
        return Push{table, 0, clock + 1 + some(12) / 12, rate};
    }
  }
  FromClient of_rows(Sender& sender, int table, Bytes& payload) {
    const std::int64_t number = sender.clock[table] + 1;
    const double rate = table == kSparse ? 0 : 0.01;
    switch (damage_.below(8)) {
      case 0:
      case 1: {
        std::int64_t count = 0;
        payload = ids(count);
        const bool newer = damage_.below(2) == 0;
        if (newer) payload.resize(2 * payload.size(), std::byte{0xff});
        sender.pulls[table] += some(1);
        return PullRows{table,
                        std::max<std::int64_t>(1, sender.pulls[table]),
                        static_cast<int>(some(3)),
                        some(4) == 0 ? number : 0,
                        some(2) == 0 ? number - 1 : 0,
                        0,
                        newer ? some(2) : -1};
      }
      case 2:
        payload = rows(false);
        return SetRows{table, number, 0, some(9)};
      case 3:
        return Who{table, 0, some(5)};
      default: {
        const bool counted = damage_.below(2) == 0;
        payload = rows(counted);
        return PushRows{table, number, rate, counted, damage_.below(3) != 0};
      }
    }
  }

  Damage damage_;
  std::vector<Sender> senders_;
  std::vector<std::uint64_t> abandoned_;
  std::uint64_t sessions_ = 0;
};

}  // namespace hetu::ps::server
