#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ps/client/ask_status.h"

namespace hetu::ps {

namespace {

using server::ClientStatus;
using server::MemberStatus;
using server::Presence;
using server::ServerStatus;
using server::TableStatus;
using server::WaitStatus;

constexpr std::size_t kNamed = 8;  // most members named in a line

std::int64_t count_of(const ServerStatus& status, Presence presence) {
  return status.count[static_cast<std::size_t>(presence)];
}

std::int64_t lag_of(const TableStatus& table) {
  std::vector<std::int64_t> clocks;
  for (const MemberStatus& m : table.members) {
    if (m.presence == Presence::Connected) clocks.push_back(m.clock);
  }
  if (clocks.empty()) return 0;
  const auto [least, most] = std::minmax_element(clocks.begin(), clocks.end());
  return *most - *least;
}

// Combines the reports of two servers about a table: progress is that of the slower server.
void add(TableStatus& to, const TableStatus& from) {
  to.bytes += from.bytes;
  to.pushes = std::min(to.pushes, from.pushes);
  to.updates = std::min(to.updates, from.updates);
  for (std::size_t m = 0; m < std::min(to.members.size(), from.members.size()); ++m) {
    const std::int64_t clock = std::min(to.members[m].clock, from.members[m].clock);
    if (to.members[m].presence == Presence::NotCome) to.members[m] = from.members[m];
    to.members[m].clock = clock;
    if (from.members[m].presence == Presence::Dead) to.members[m].presence = Presence::Dead;
  }
  for (const WaitStatus& wait : from.waiting) {
    const auto same = std::find_if(to.waiting.begin(), to.waiting.end(),
                                   [&](const WaitStatus& w) { return w.member == wait.member; });
    if (same == to.waiting.end()) {
      to.waiting.push_back(wait);
    } else {
      same->least = std::max(same->least, wait.least);
      same->parts += wait.parts;
    }
  }
}

std::string member_name(const TableStatus& table, int member) {
  const MemberStatus& m = table.members[static_cast<std::size_t>(member)];
  return m.worker < 0 ? fmt::format("member {}, which has not connected", member)
                      : fmt::format("worker {}", m.worker);
}

std::string describe(const WholeTable& table) {
  const TableStatus& t = table.about;
  std::string text =
      fmt::format("table \"{}\": {} elements{}, {} bytes, {}; {} updates, {} pushes, lag {}\n",
                  t.name, t.elements, t.width > 0 ? fmt::format(" in rows of {}", t.width) : "",
                  t.bytes, t.rule, t.updates, t.pushes, table.lag);
  for (std::size_t m = 0; m < t.members.size(); ++m) {
    const MemberStatus& member = t.members[m];
    text += fmt::format("  member {:<4} {:<12} {:<10} clock {}\n", m,
                        member.worker < 0 ? "-" : fmt::format("worker {}", member.worker),
                        presence_name(member.presence), member.clock);
  }
  for (std::size_t w = 0; w < t.waiting.size(); ++w) {
    std::string names;
    const std::vector<int>& members = table.waits_for[w];
    for (std::size_t i = 0; i < std::min(kNamed, members.size()); ++i) {
      names += (i > 0 ? ", " : "") + member_name(t, members[i]);
    }
    if (members.size() > kNamed) names += fmt::format(" and {} more", members.size() - kNamed);
    text += fmt::format("  {} waits for clock {} of {}\n", member_name(t, t.waiting[w].member),
                        t.waiting[w].least, names.empty() ? "its own pushes" : names);
  }
  return text;
}

/// Samples grouped by metric, as the Prometheus text format requires.
class Metrics {
 public:
  void declare(const std::string& name, const char* type, const char* help) {
    order_.push_back(name);
    heads_[name] = fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  using Labels = std::vector<std::pair<std::string, std::string>>;
  void add(const std::string& name, const Labels& labels, std::int64_t value) {
    std::string text;
    for (const auto& [label, of] : labels) {
      text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", label, escaped(of));
    }
    samples_[name] += fmt::format("{}{{{}}} {}\n", name, text, value);
  }
  std::string text() const {
    std::string all;
    for (const std::string& name : order_) {
      const auto found = samples_.find(name);
      if (found != samples_.end()) all += heads_.at(name) + found->second;
    }
    return all;
  }

 private:
  static std::string escaped(const std::string& value) {
    std::string out;
    for (const char c : value) {
      if (c == '\\' || c == '"') out += '\\';
      out += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return out;
  }
  std::vector<std::string> order_;
  std::map<std::string, std::string> heads_;
  std::map<std::string, std::string> samples_;
};

void declare_all(Metrics& to) {
  to.declare("hetu_ps_up", "gauge", "1 if the server has answered, 0 otherwise.");
  to.declare("hetu_ps_received_bytes_total", "counter", "Bytes of received messages.");
  to.declare("hetu_ps_sent_bytes_total", "counter", "Bytes of sent messages.");
  to.declare("hetu_ps_dropped_messages_total", "counter", "Messages that were dropped.");
  to.declare("hetu_ps_clients", "gauge", "Clients by presence.");
  to.declare("hetu_ps_tables", "gauge", "Tables that the server holds parts of.");
  to.declare("hetu_ps_table_elements", "gauge", "Elements of a table.");
  to.declare("hetu_ps_table_bytes", "gauge", "Bytes that a table takes on the servers.");
  to.declare("hetu_ps_table_updates_total", "counter", "Updates that a table has received.");
  to.declare("hetu_ps_table_lag", "gauge", "Clock of the fastest member minus the slowest's.");
  to.declare("hetu_ps_table_waiting_pulls", "gauge", "Members whose pull is not answered yet.");
  to.declare("hetu_ps_member_clock", "gauge", "Updates of a member that all servers have.");
}

}  // namespace

std::vector<WholeTable> whole_tables(const std::vector<AskedStatus>& all) {
  std::map<std::string, TableStatus> by_name;
  for (const AskedStatus& asked : all) {
    for (const TableStatus& table : asked.status.tables) {
      const auto [place, is_new] = by_name.try_emplace(table.name, table);
      if (!is_new) add(place->second, table);
    }
  }
  std::vector<WholeTable> whole;
  for (auto& [name, table] : by_name) {
    WholeTable& one = whole.emplace_back();
    one.lag = lag_of(table);
    for (const WaitStatus& wait : table.waiting) {
      one.waits_for.push_back(waited_for(table, wait));
    }
    one.about = std::move(table);
  }
  return whole;
}

std::string status_text(const std::vector<AskedStatus>& all) {
  std::string text;
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (!all[s].failure.empty()) {
      text += fmt::format("server {} at {}: {}\n", s, all[s].endpoint, all[s].failure);
      continue;
    }
    const ServerStatus& status = all[s].status;
    text += fmt::format(
        "server {} of {} at {}: clients: {} connected, {} left, {} dead; bytes: {} in, {} out; {} "
        "messages dropped\n",
        status.server, status.servers, all[s].endpoint, count_of(status, Presence::Connected),
        count_of(status, Presence::Left), count_of(status, Presence::Dead), status.received_bytes,
        status.sent_bytes, status.dropped);
    for (const ClientStatus& client : status.clients) {
      if (client.presence == Presence::Dead) {
        text += fmt::format("  worker {} is dead: it {}\n", client.worker, client.death);
      }
    }
  }
  for (const WholeTable& table : whole_tables(all)) text += describe(table);
  return text;
}

std::string status_json(const std::vector<AskedStatus>& all) {
  nlohmann::ordered_json out = {{"servers", nlohmann::ordered_json::array()},
                                {"tables", nlohmann::ordered_json::array()}};
  for (std::size_t s = 0; s < all.size(); ++s) {
    const ServerStatus& status = all[s].status;
    nlohmann::ordered_json one = {{"server", s}, {"endpoint", all[s].endpoint}};
    if (!all[s].failure.empty()) {
      one["failure"] = all[s].failure;
      out["servers"].push_back(one);
      continue;
    }
    one["received_bytes"] = status.received_bytes;
    one["sent_bytes"] = status.sent_bytes;
    one["dropped_messages"] = status.dropped;
    for (const Presence p : {Presence::Connected, Presence::Left, Presence::Dead}) {
      one["clients"][presence_name(p)] = count_of(status, p);
    }
    one["client_list"] = nlohmann::ordered_json::array();
    for (const ClientStatus& c : status.clients) {
      one["client_list"].push_back({{"worker", c.worker},
                                    {"presence", presence_name(c.presence)},
                                    {"silent_s", static_cast<double>(c.silent_us) / 1e6},
                                    {"pushed_parts", c.pushes},
                                    {"death", c.death}});
    }
    out["servers"].push_back(one);
  }
  for (const WholeTable& table : whole_tables(all)) {
    const TableStatus& t = table.about;
    nlohmann::ordered_json one = {
        {"name", t.name},   {"elements", t.elements}, {"row_width", t.width}, {"rule", t.rule},
        {"bytes", t.bytes}, {"pushes", t.pushes},     {"updates", t.updates}, {"lag", table.lag}};
    one["members"] = nlohmann::ordered_json::array();
    for (const MemberStatus& m : t.members) {
      one["members"].push_back(
          {{"worker", m.worker}, {"presence", presence_name(m.presence)}, {"clock", m.clock}});
    }
    one["waiting"] = nlohmann::ordered_json::array();
    for (std::size_t w = 0; w < t.waiting.size(); ++w) {
      nlohmann::ordered_json least = t.waiting[w].least;
      one["waiting"].push_back(
          {{"member", t.waiting[w].member}, {"least", least}, {"for", table.waits_for[w]}});
    }
    out["tables"].push_back(one);
  }
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string status_prometheus(const std::vector<AskedStatus>& all) {
  Metrics to;
  declare_all(to);
  for (std::size_t s = 0; s < all.size(); ++s) {
    const Metrics::Labels server = {{"server", std::to_string(s)}};
    to.add("hetu_ps_up", server, all[s].failure.empty() ? 1 : 0);
    if (!all[s].failure.empty()) continue;
    const ServerStatus& status = all[s].status;
    to.add("hetu_ps_received_bytes_total", server, status.received_bytes);
    to.add("hetu_ps_sent_bytes_total", server, status.sent_bytes);
    to.add("hetu_ps_dropped_messages_total", server, status.dropped);
    to.add("hetu_ps_tables", server, status.tables_in_all);
    for (const Presence p : {Presence::Connected, Presence::Left, Presence::Dead}) {
      to.add("hetu_ps_clients", {server[0], {"presence", presence_name(p)}}, count_of(status, p));
    }
  }
  for (const WholeTable& table : whole_tables(all)) {
    const TableStatus& t = table.about;
    const Metrics::Labels name = {{"table", t.name}};
    to.add("hetu_ps_table_elements", name, t.elements);
    to.add("hetu_ps_table_bytes", name, t.bytes);
    to.add("hetu_ps_table_updates_total", name, t.updates);
    to.add("hetu_ps_table_lag", name, table.lag);
    to.add("hetu_ps_table_waiting_pulls", name, static_cast<std::int64_t>(t.waiting.size()));
    for (std::size_t m = 0; m < t.members.size(); ++m) {
      const MemberStatus& member = t.members[m];
      to.add("hetu_ps_member_clock",
             {name[0],
              {"member", std::to_string(m)},
              {"worker", std::to_string(member.worker)},
              {"presence", presence_name(member.presence)}},
             member.clock);
    }
  }
  return to.text();
}

}  // namespace hetu::ps
