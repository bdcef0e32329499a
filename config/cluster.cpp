#include "config/cluster.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

constexpr int kMostPerHost = 1024;
constexpr const char* kNodeKeys = "host, servers, workers, chief";

/// Reads one file. Keeps its name for messages.
class Reader {
 public:
  explicit Reader(std::string origin) : origin_(std::move(origin)) {}

  Cluster read(const std::string& text);

 private:
  template <class... Args>
  [[noreturn]] void refuse(const YAML::Mark& mark, fmt::format_string<Args...> format,
                           Args&&... args) const {
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    if (mark.is_null()) fail(Code::Config, "{}: {}", origin_, what);
    fail(Code::Config, "{}:{}: {}", origin_, mark.line + 1, what);
  }

  // `at` is the position of the key. The position of the value would not do for messages, because
  // yaml-cpp places an omitted value at whatever follows it.
  std::string scalar(const YAML::Mark& at, const YAML::Node& value, const std::string& key,
                     const char* right) const;
  int count(const YAML::Mark& at, const YAML::Node& value, const std::string& key) const;
  bool truth(const YAML::Mark& at, const YAML::Node& value, const std::string& key) const;
  std::string host(const YAML::Mark& at, const YAML::Node& value) const;
  ClusterNode node(const YAML::Node& map) const;
  void check(const YAML::Node& list, const Cluster& cluster) const;

  std::string origin_;
};

const char* kind_of(const YAML::Node& value) {
  if (value.IsSequence()) return "a list";
  if (value.IsMap()) return "a map";
  if (value.IsScalar()) return "a plain value";
  return "nothing";
}

std::string Reader::scalar(const YAML::Mark& at, const YAML::Node& value, const std::string& key,
                           const char* right) const {
  if (!value.IsScalar()) {
    refuse(at, "'{}' is {}; it must be {}", key, kind_of(value), right);
  }
  return value.Scalar();
}

int Reader::count(const YAML::Mark& at, const YAML::Node& value, const std::string& key) const {
  const std::string right = fmt::format("a whole number from 0 to {}", kMostPerHost);
  const std::string text = scalar(at, value, key, right.c_str());
  const bool digits = !text.empty() && text.size() <= 9 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  const int number = digits ? std::stoi(text) : -1;
  if (number < 0 || number > kMostPerHost) {
    refuse(at, "'{}' is '{}'; it must be {}", key, text, right);
  }
  return number;
}

bool Reader::truth(const YAML::Mark& at, const YAML::Node& value, const std::string& key) const {
  const std::string text = scalar(at, value, key, "true or false");
  bool result = false;
  if (!YAML::convert<bool>::decode(value, result)) {
    refuse(at, "'{}' is '{}'; it must be true or false", key, text);
  }
  return result;
}

// The name becomes an argument of mpirun and ssh. It must not look like an option, a list or a
// count to either of them.
std::string Reader::host(const YAML::Mark& at, const YAML::Node& value) const {
  const char* right = "a host name: letters, digits, '.', '-' and '_', not starting with '-'";
  std::string text = scalar(at, value, "host", right);
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  };
  if (text.empty() || text[0] == '-' || !std::all_of(text.begin(), text.end(), allowed)) {
    refuse(at, "'host' is '{}'; it must be {}", text, right);
  }
  return text;
}

ClusterNode Reader::node(const YAML::Node& map) const {
  if (!map.IsMap()) {
    refuse(map.Mark(), "a node is {}; it must be a map with the keys {}", kind_of(map), kNodeKeys);
  }
  ClusterNode result;
  std::map<std::string, int> seen;
  for (const auto& entry : map) {
    const std::string key = scalar(entry.first.Mark(), entry.first, "key", "a plain value");
    if (key == "host") {
      result.host = host(entry.first.Mark(), entry.second);
    } else if (key == "servers") {
      result.servers = count(entry.first.Mark(), entry.second, key);
    } else if (key == "workers") {
      result.workers = count(entry.first.Mark(), entry.second, key);
    } else if (key == "chief") {
      result.chief = truth(entry.first.Mark(), entry.second, key);
    } else {
      refuse(entry.first.Mark(), "unknown key '{}' of a node; known keys: {}", key, kNodeKeys);
    }
    if (++seen[key] > 1) {
      refuse(entry.first.Mark(), "key '{}' is given twice in one node; give it once", key);
    }
  }
  if (result.host.empty()) {
    refuse(map.Mark(), "a node has no 'host'; give its host name, e.g. host: w0");
  }
  return result;
}

void Reader::check(const YAML::Node& list, const Cluster& cluster) const {
  const ClusterNode* chief = nullptr;
  std::map<std::string, int> line_of;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const ClusterNode& node = cluster.nodes[i];
    const YAML::Mark mark = list[i].Mark();
    const auto [before, first] = line_of.emplace(node.host, mark.line + 1);
    if (!first) {
      refuse(mark,
             "host '{}' is given twice, first in line {}; merge the two nodes and add up "
             "their counts",
             node.host, before->second);
    }
    if (!node.chief) continue;
    if (chief != nullptr) {
      refuse(mark, "'{}' and '{}' are both chief; exactly one node must have chief: true",
             chief->host, node.host);
    }
    chief = &node;
  }
  if (chief == nullptr) {
    refuse(list.Mark(), "no node is chief; exactly one node must have chief: true");
  }
  if (cluster.workers() == 0) {
    refuse(list.Mark(),
           "the nodes have 0 workers in total; at least one node must have workers: 1 "
           "or more");
  }
}

Cluster Reader::read(const std::string& text) {
  YAML::Node root;
  try {
    root = YAML::Load(bounded_yaml(text, origin_));
  } catch (const YAML::Exception& error) {
    refuse(error.mark, "not YAML: {}", error.msg);
  }
  if (!root.IsMap()) {
    refuse(root.Mark(), "the file holds {}; it must be a map with a list 'nodes'", kind_of(root));
  }
  Cluster cluster;
  YAML::Node nodes;
  bool found = false;
  for (const auto& entry : root) {
    const std::string key = scalar(entry.first.Mark(), entry.first, "key", "a plain value");
    if (key != "nodes") {
      cluster.warnings.push_back(
          fmt::format("{}:{}: top-level key '{}' is ignored; heturun reads only 'nodes'", origin_,
                      entry.first.Mark().line + 1, key));
      continue;
    }
    if (found) refuse(entry.first.Mark(), "'nodes' is given twice; give it once");
    found = true;
    nodes.reset(entry.second);
  }
  if (!found) refuse(root.Mark(), "the key 'nodes' is missing; it must be a list of hosts");
  if (!nodes.IsSequence() || nodes.size() == 0) {
    refuse(nodes.Mark(), "'nodes' is {}; it must be a list of at least one node with the keys {}",
           nodes.IsSequence() ? "an empty list" : kind_of(nodes), kNodeKeys);
  }
  for (const YAML::Node& entry : nodes) cluster.nodes.push_back(node(entry));
  check(nodes, cluster);
  return cluster;
}

}  // namespace

int Cluster::servers() const {
  int sum = 0;
  for (const ClusterNode& node : nodes) sum += node.servers;
  return sum;
}

int Cluster::workers() const {
  int sum = 0;
  for (const ClusterNode& node : nodes) sum += node.workers;
  return sum;
}

const ClusterNode& Cluster::chief() const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [](const ClusterNode& node) { return node.chief; });
  HETU_ASSERT(found != nodes.end());
  return *found;
}

Cluster parse_cluster(const std::string& text, const std::string& origin) {
  return Reader(origin).read(text);
}

Cluster read_cluster(const std::string& path) {
  std::string text;
  try {
    text = read_text(path);
  } catch (const Error& error) {
    fail(error.code(), "cluster file {}; give a YAML file", error.what());
  }
  return parse_cluster(text, path);
}

}  // namespace hetu
