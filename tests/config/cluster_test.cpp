// Tests the cluster file: values that are read, and one exact error for each possible mistake.
#include "config/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace hetu {
namespace {

using testing::HasSubstr;

struct Bad {
  const char* name;
  const char* text;
  std::vector<const char*> parts;  ///< text that the message must contain
};

void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

const char* const kKnown = "known keys: host, servers, workers, chief";
const char* const kCount = "a whole number from 0 to 1024";

const Bad kBad[] = {
    {"Empty", "", {"c.yml: the file holds nothing", "list 'nodes'"}},
    {"OnlyComment", "# nothing\n", {"c.yml: the file holds nothing"}},
    {"NotYaml", "nodes:\n  - host: [w0\n", {"c.yml:", "not YAML"}},
    {"Tab", "nodes:\n\t- host: w0\n", {"c.yml:2: not YAML"}},
    {"Scalar", "w0\n", {"c.yml:1: the file holds a plain value"}},
    {"List", "- host: w0\n", {"c.yml:1: the file holds a list"}},
    {"NoNodes", "shared: {}\n", {"c.yml:1: the key 'nodes' is missing"}},
    {"NodesTwice",
     "nodes:\n  - {host: a, workers: 1, chief: true}\nnodes: []\n",
     {"c.yml:3: 'nodes' is given twice"}},
    {"NodesEmpty", "nodes: []\n", {"c.yml:1: 'nodes' is an empty list", "at least one node"}},
    {"NodesNothing", "nodes:\n", {"'nodes' is nothing", "list of at least one node"}},
    {"NodesMap", "nodes:\n  host: w0\n", {"c.yml:2: 'nodes' is a map"}},
    {"NodeScalar",
     "nodes:\n  - w0\n",
     {"c.yml:2: a node is a plain value", "map with the keys host"}},
    {"UnknownKey",
     "nodes:\n  - host: w0\n    worker: 4\n    chief: true\n",
     {"c.yml:3: unknown key 'worker' of a node", kKnown}},
    {"KeyTwice",
     "nodes:\n  - host: w0\n    workers: 4\n    workers: 4\n    chief: true\n",
     {"c.yml:4: key 'workers' is given twice in one node"}},
    {"NoHost", "nodes:\n  - workers: 4\n    chief: true\n", {"c.yml:2: a node has no 'host'"}},
    {"HostEmpty", "nodes:\n  - host: ''\n    chief: true\n", {"c.yml:2: 'host' is ''"}},
    {"HostNothing", "nodes:\n  - host:\n    chief: true\n", {"c.yml:2: 'host' is nothing"}},
    {"HostOption",
     "nodes:\n  - host: -oProxyCommand=x\n    chief: true\n",
     {"c.yml:2: 'host' is '-oProxyCommand=x'", "not starting with '-'"}},
    {"HostWithCount", "nodes:\n  - host: w0:8\n    chief: true\n", {"c.yml:2: 'host' is 'w0:8'"}},
    {"HostList", "nodes:\n  - host: [w0, w1]\n", {"c.yml:2: 'host' is a list"}},
    {"HostTwice",
     "nodes:\n  - {host: w0, workers: 1, chief: true}\n  - {host: w1}\n  - {host: w0}\n",
     {"c.yml:4: host 'w0' is given twice, first in line 2"}},
    {"NegativeWorkers",
     "nodes:\n  - host: w0\n    workers: -1\n    chief: true\n",
     {"c.yml:3: 'workers' is '-1'", kCount}},
    {"AbsurdWorkers",
     "nodes:\n  - host: w0\n    workers: 1025\n    chief: true\n",
     {"c.yml:3: 'workers' is '1025'", kCount}},
    {"HugeWorkers",
     "nodes:\n  - host: w0\n    workers: 99999999999999999999\n    chief: true\n",
     {"c.yml:3: 'workers' is '99999999999999999999'", kCount}},
    {"FractionOfServer",
     "nodes:\n  - host: w0\n    servers: 0.5\n    chief: true\n",
     {"c.yml:3: 'servers' is '0.5'", kCount}},
    {"WorkersNothing",
     "nodes:\n  - host: w0\n    workers:\n    chief: true\n",
     {"'workers' is nothing", kCount}},
    {"WorkersList",
     "nodes:\n  - host: w0\n    workers: [1]\n    chief: true\n",
     {"c.yml:3: 'workers' is a list", kCount}},
    {"ChiefNumber",
     "nodes:\n  - host: w0\n    workers: 1\n    chief: 1\n",
     {"c.yml:4: 'chief' is '1'; it must be true or false"}},
    {"NoChief", "nodes:\n  - host: w0\n    workers: 1\n", {"c.yml:2: no node is chief"}},
    {"TwoChiefs",
     "nodes:\n  - {host: w0, workers: 1, chief: true}\n  - {host: w1, chief: true}\n",
     {"c.yml:3: 'w0' and 'w1' are both chief", "exactly one node"}},
    {"NoWorkers",
     "nodes:\n  - {host: w0, servers: 1, chief: true}\n",
     {"c.yml:2: the nodes have 0 workers in total"}},
};

class BadCluster : public testing::TestWithParam<Bad> {};

TEST_P(BadCluster, IsRefusedInOneLine) {
  try {
    parse_cluster(GetParam().text, "c.yml");
    FAIL() << "accepted:\n" << GetParam().text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Config);
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const char* part : GetParam().parts) EXPECT_THAT(message, HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, BadCluster, testing::ValuesIn(kBad),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Cluster, ReadsDefaultsOrderAndChief) {
  const Cluster c = parse_cluster(
      "nodes:\n  - {host: w1, workers: 3}\n  - {host: w-0.a_b, servers: 2, workers: 1, chief: "
      "yes}\n",
      "c.yml");
  ASSERT_EQ(c.nodes.size(), 2U);
  EXPECT_EQ(c.nodes[0].host, "w1");
  EXPECT_EQ(c.nodes[0].servers, 0);
  EXPECT_EQ(c.workers(), 4);
  EXPECT_EQ(c.servers(), 2);
  EXPECT_EQ(c.chief().host, "w-0.a_b");
  EXPECT_TRUE(c.warnings.empty());
}

TEST(Cluster, WarnsOfOtherTopLevelKeys) {
  const Cluster c = parse_cluster(
      "shared: {A: 1}\nnodes:\n  - {host: w0, workers: 1, chief: true}\nlaunch: {}\n", "c.yml");
  ASSERT_EQ(c.warnings.size(), 2U);
  EXPECT_THAT(c.warnings[0], HasSubstr("c.yml:1: top-level key 'shared' is ignored"));
  EXPECT_THAT(c.warnings[1], HasSubstr("c.yml:4: top-level key 'launch' is ignored"));
}

TEST(Cluster, UnreadablePathsAreNamed) {
  for (const char* path : {"/nonexistent/c.yml", "/"}) {
    try {
      read_cluster(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Io);
      EXPECT_THAT(error.what(), HasSubstr(std::string("cluster file ") + path));
    }
  }
}

// Tests run in the root of the source tree.
TEST(Cluster, EveryShippedFileIsRight) {
  struct Want {
    int hosts, workers, servers;
  };
  const std::pair<const char*, Want> wants[] = {{"local", {1, 4, 0}},  {"config_local", {1, 4, 1}},
                                                {"w0_w1", {2, 16, 1}}, {"w2_w3", {2, 16, 1}},
                                                {"w4_w5", {2, 16, 1}}, {"w6_w7", {2, 16, 1}},
                                                {"w0_w3", {4, 32, 1}}, {"w0_w7", {8, 64, 1}}};
  for (const auto& [name, want] : wants) {
    const Cluster c = read_cluster(fmt::format("config/{}.yml", name));
    EXPECT_EQ(static_cast<int>(c.nodes.size()), want.hosts) << name;
    EXPECT_EQ(c.workers(), want.workers) << name;
    EXPECT_EQ(c.servers(), want.servers) << name;
    EXPECT_EQ(c.chief().host, c.nodes[0].host) << name;
    EXPECT_TRUE(c.warnings.empty()) << name;
  }
}

}  // namespace
}  // namespace hetu
