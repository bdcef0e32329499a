// Listening sockets as heturun creates them; used by the tests of ps/.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

namespace hetu::ps {

/// Returns a listening socket and its endpoint. A Unix socket lies in `folder`, by default in a
/// folder that other users may enter.
inline std::pair<int, std::string> listen_on(bool tcp, const std::string& folder = "") {
  static int number = 0;
  if (tcp) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(fd, 128), 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
    return {fd, "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port))};
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (folder.empty() ? testing::TempDir() : folder + "/") + "hetu_ps_" +
                           std::to_string(getpid()) + "_" + std::to_string(++number);
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  unlink(path.c_str());
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(fd, 128), 0);
  return {fd, "ipc://" + path};
}

}  // namespace hetu::ps
