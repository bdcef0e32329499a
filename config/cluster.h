// The cluster file that `heturun -c` reads. It lists the hosts and the number of processes on each.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// One host of the cluster.
struct ClusterNode {
  std::string host;
  int servers = 0;  ///< parameter servers on this host
  int workers = 0;  ///< workers on this host
  bool chief = false;
};

/// The hosts in the order of the file. Workers are numbered in this order.
struct Cluster {
  std::vector<ClusterNode> nodes;
  std::vector<std::string> warnings;  ///< one line for each top-level key that was ignored

  int servers() const;
  int workers() const;
  /// Returns the node with chief = true.
  const ClusterNode& chief() const;
};

/// Parses YAML text: a list `nodes` of maps with the keys host, servers (default 0), workers
/// (default 0) and chief (default false). There must be exactly one chief and at least one worker.
/// Each host may occur once, and counts are from 0 to 1024. Other top-level keys are ignored with a
/// warning. Throws Config with "origin:line: what was found; what is expected".
Cluster parse_cluster(const std::string& text, const std::string& origin);

/// Calls parse_cluster on a file. Throws Io if the file cannot be read.
Cluster read_cluster(const std::string& path);

}  // namespace hetu
