// The cluster file that `heturun -c` reads: which hosts there are and how many processes each runs.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// One host of the cluster.
struct ClusterNode {
  std::string host;
  int servers = 0;
  int workers = 0;
  bool chief = false;
};

/// The hosts in the order of the file; workers are numbered in this order.
struct Cluster {
  std::vector<ClusterNode> nodes;
  std::vector<std::string> warnings;  ///< one line for each top-level key that was ignored

  int servers() const;
  int workers() const;
  /// The one node with chief = true.
  const ClusterNode& chief() const;
};

/// Reads YAML text: a list `nodes` of maps with the keys host, servers (0), workers (0) and chief
/// (false). Exactly one chief, every host once, at least one worker, counts from 0 to 1024; other
/// top-level keys are ignored with a warning. Throws Config: "origin:line: what, found, right".
Cluster parse_cluster(const std::string& text, const std::string& origin);

/// parse_cluster of a file. Throws Io if the file cannot be read.
Cluster read_cluster(const std::string& path);

}  // namespace hetu
