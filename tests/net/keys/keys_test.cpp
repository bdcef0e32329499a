// Tests the keys of a job: their creation, and their use by sockets.
#include "net/keys/keys.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <zmq.hpp>

#include "base/error.h"
#include "net/keys/sockets.h"
#include "tests/temporary_folder.h"

namespace hetu::curve {
namespace {

TEST(Curve, KeysAreNewEachTimeAndSocketsTakeThem) {
  const KeyPair one = make_key_pair();
  const KeyPair other = make_key_pair();
  EXPECT_NE(one.public_key, other.public_key);
  EXPECT_NE(one.secret_key, other.secret_key);
  EXPECT_NE(one.secret_key, one.public_key);
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  for (const std::string& key : {one.public_key, one.secret_key}) {
    EXPECT_THAT(key, testing::MatchesRegex("[0-9a-f]+"));
    EXPECT_EQ(key.size(), 64U);
    set_key(socket, ZMQ_CURVE_PUBLICKEY, key);
    std::array<std::byte, 32> set{};
    std::size_t size = set.size();
    ASSERT_EQ(zmq_getsockopt(socket.handle(), ZMQ_CURVE_PUBLICKEY, set.data(), &size), 0);
    EXPECT_EQ(set, key_bytes(key));
  }
}

TEST(Curve, ATextThatIsNoKeyIsRefused) {
  const std::string good(64, 'a');
  EXPECT_EQ(key_bytes(good)[31], std::byte{0xaa});
  for (const std::string& wrong :
       {std::string(), good.substr(2), good + "aa", good.substr(1) + "g", " " + good.substr(1)}) {
    try {
      key_bytes(wrong);
      ADD_FAILURE() << "taken: '" << wrong << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Config) << wrong;
      EXPECT_THAT(error.what(), testing::HasSubstr("64 hexadecimal digits"));
    }
  }
}

TEST(Curve, AnEndpointIsPrivateInAFolderOfItsOwnersAlone) {
  const TemporaryFolder made;
  const std::string& folder = made.path();
  for (mode_t others = 0; others < 0100; ++others) {
    ASSERT_EQ(chmod(folder.c_str(), 0700 | others), 0);
    EXPECT_EQ(is_private("ipc://" + folder + "/server-0"), others == 0) << std::oct << others;
  }
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  for (const std::string& other :
       {"tcp://127.0.0.1:1" + folder + "/a", folder + "/a", "ipc://" + folder + "/none/a",
        std::string("ipc://a"), std::string("ipc://"), std::string("ipc://*")})
    EXPECT_FALSE(is_private(other)) << other;
  if (chown(folder.c_str(), geteuid() + 1, static_cast<gid_t>(-1)) == 0)
    EXPECT_FALSE(is_private("ipc://" + folder + "/server-0")) << "another user's";
  else
    std::puts("a folder of another user: not tried, for want of root's rights");
}

}  // namespace
}  // namespace hetu::curve
