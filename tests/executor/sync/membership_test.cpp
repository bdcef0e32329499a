// Tests membership from the view of one of two pipelines: exchanges of text with the other
// pipeline, and sums after the other pipeline is lost.
#include "executor/sync/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "net/keys/keys.h"
#include "net/transport/tag_kinds.h"
#include "ps/coordinator/local_coordinator.h"

namespace hetu {
namespace {

// Pipeline 0 of two, and the links of both.
struct FirstOfTwo {
  FirstOfTwo() {
    std::vector<std::string> endpoints;
    comm::Options links;
    links.timeout_s = 20;
    for (int d = 0; d < 2; ++d) {
      meshes.push_back(
          comm::open_mesh({d, 2, "tcp://127.0.0.1:*", keys.public_key, keys.secret_key}, links));
      endpoints.push_back(meshes.back()->endpoint());
    }
    for (const auto& mesh : meshes) mesh->meet(endpoints);
    ps::ClientOptions client;
    client.policy.pipelines = 2;
    client.on_failure_shrink = true;
    line = coordinator.client(client);
  }
  Membership::Position position() const { return {0, 0, {0, 1}, meshes[0].get()}; }

  const curve::KeyPair keys = curve::make_key_pair();
  std::vector<std::unique_ptr<comm::Mesh>> meshes;
  ps::LocalCoordinator coordinator;
  std::unique_ptr<ps::GroupClient> line;
};

TEST(Membership, RefusesATextThatNoPipelineWrites) {
  FirstOfTwo two;
  Membership members(*two.meshes[0], *two.line, two.position());
  const std::uint64_t bytes = std::uint64_t{1} << 60;
  const comm::Tag head = comm::make_tag(kConsensusTag, 0, 0x3ffff, 0, 0);
  two.meshes[1]->wait(*two.meshes[1]->send(0, head, &bytes, sizeof bytes), "a length");
  EXPECT_THAT(
      [&] { members.exchange("mine"); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("the text of pipeline 1 has 11529215")));
}

TEST(Membership, SumsEndWithALostPipelineWhenTheyFollowAndThoseOfBefore) {
  FirstOfTwo two;
  Membership members(*two.meshes[0], *two.line, two.position());
  comm::Reducer before(*two.meshes[0]), after(*two.meshes[0]);
  float value = 1;
  members.follow(before);
  const auto open =
      before.start_sum({0, 1}, DType::Float32, &value, 1, comm::make_tag(1, 0, 0, 0, 0));
  EXPECT_FALSE(members.is_broken({0, 1}));
  two.coordinator.lose(1, "was killed");
  EXPECT_TRUE(members.is_broken({0, 1}));
  EXPECT_FALSE(members.is_broken({0}));
  EXPECT_TRUE(members.is_first());
  members.follow(after);
  const auto late =
      after.start_sum({0, 1}, DType::Float32, &value, 1, comm::make_tag(1, 0, 0, 0, 1));
  const auto lost = testing::ThrowsMessage<Error>(testing::HasSubstr("pipeline 1 is lost"));
  EXPECT_THAT([&] { before.wait(*open, "the sum of before"); }, lost);
  EXPECT_THAT([&] { after.wait(*late, "the sum of after"); }, lost);
  members.unfollow(before);
  members.unfollow(after);
}

}  // namespace
}  // namespace hetu
