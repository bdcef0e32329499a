// `hetu ps serve`: runs a parameter server without heturun.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "base/error.h"
#include "base/words.h"
#include "cli/command.h"
#include "cli/options.h"
#include "net/keys/keys.h"
#include "net/wire/connection_file.h"
#include "net/wire/listen.h"
#include "ps/server/serve.h"
#include "ps/server/split.h"

namespace hetu::cli {
namespace {

constexpr double kLeastMemory = 1 << 20, kMostMemory = 0x1p50;

struct Request {
  std::string listen;
  std::string keys;
  int server = 0;
  int servers = 1;
  std::int64_t memory = 0;  ///< bytes; 0: not set
};

std::vector<Option> options_of(Request& r) {
  const auto number = [](int& to, int least, int most) {
    return [&to, least, most](const std::string& text) {
      to = static_cast<int>(to_integer(text, least, most));
    };
  };
  return {{"--listen", "ENDPOINT", "tcp://A.B.C.D:PORT (PORT * picks a free port) or ipc://PATH",
           [&r](const std::string& text) { r.listen = text; }},
          {"--keys", "FILE",
           "the connection file, readable by its owner only; created with new keys if it does not "
           "exist. The server adds its endpoint to the file",
           [&r](const std::string& text) { r.keys = text; }},
          {"--server", "K", "number of this server, from 0 (default: 0)",
           number(r.server, 0, ps::server::kMostServers - 1)},
          {"--servers", "N", "number of servers (default: 1); all of them use the same FILE",
           number(r.servers, 1, ps::server::kMostServers)},
          {"--memory", "BYTES",
           "memory for tables and waiting updates, such as 16GiB (default: 7/8 of this machine's "
           "memory); requests for more are refused",
           [&r](const std::string& text) {
             const std::optional<double> bytes = to_bytes(text);
             require(bytes && *bytes >= kLeastMemory && *bytes <= kMostMemory,
                     "must be 1MiB to 1048576GiB, got '{}'", shortened(text));
             r.memory = static_cast<std::int64_t>(*bytes);
           }}};
}

std::string serve_help() {
  Request unused;
  return "usage: hetu ps serve --listen ENDPOINT --keys FILE [--server K --servers N] [--memory "
         "BYTES]\n"
         "Runs a stand-alone parameter server until SIGINT or SIGTERM. Programs that can read FILE "
         "may\n"
         "connect (hetu.ps.connect, hetu ps status).\n\n"
         "Options:\n" +
         help_text(options_of(unused));
}

Request parse(const Arguments& arguments) {
  Request r;
  const std::vector<std::string> rest = parse_options(arguments, options_of(r));
  require(rest.empty(), "takes options only, got '{}'", rest.empty() ? "" : shortened(rest[0]));
  require(!r.listen.empty(), "needs --listen tcp://ADDRESS:PORT or ipc://PATH");
  require(!r.keys.empty(), "needs --keys FILE; the file is created if it does not exist");
  require(r.server < r.servers, "--server must be 0 to {} with --servers {}, got {}", r.servers - 1,
          r.servers, r.server);
  return r;
}

ps::JobKeys keys_in(const std::string& path) {
  const curve::KeyPair server = curve::make_key_pair();
  const curve::KeyPair worker = curve::make_key_pair();
  ps::JobKeys keys{server.public_key, server.secret_key, worker.public_key, worker.secret_key};
  if (ps::make_connection_file(path, keys)) return keys;
  return {};
}

volatile std::sig_atomic_t g_control = -1;

// Closes the server's control pipe, which makes the server stop in order.
extern "C" void end_in_order(int) {
  if (g_control >= 0) close(g_control);
  g_control = -1;
}

}  // namespace

int ps_serve_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(serve_help(), ""), 0;
  const Request r = parse(arguments);
  if (!ps::can_serve_parameters()) ps::serve_parameters({});  // throws the reason
  const ps::Listener listener(r.listen);
  ps::JobKeys keys = keys_in(r.keys);
  if (keys.server_secret.empty()) {
    const ps::Connection found = ps::read_connection_file(r.keys);
    if (found.servers != 0 && found.servers != r.servers) {
      fail(Code::Config,
           "{} is the connection file of {} servers, not of {}; use another file, or "
           "--servers {}",
           r.keys, found.servers, r.servers, found.servers);
    }
    if (found.keys.server_secret.empty()) {
      fail(Code::Config,
           "{} has no secret key of the servers, because it is a copy for clients; "
           "use the original file",
           r.keys);
    }
    keys = found.keys;
  }

  int control[2];
  if (pipe2(control, O_CLOEXEC) != 0)
    fail(Code::Io, "cannot create a pipe for the parameter server");
  g_control = control[1];
  struct sigaction action {};
  action.sa_handler = end_in_order;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);

  ps::add_server(r.keys, r.server, r.servers,
                 fmt::format("{}", fmt::join(listener.reached_at(), ",")));
  put(fmt::format("parameter server {} of {} listens at {}; connect with {}\n", r.server, r.servers,
                  listener.endpoint(), r.keys),
      "");
  ps::ServeParameters options;
  options.server = r.server;
  options.servers = r.servers;
  options.endpoint = listener.endpoint();
  options.listener_fd = listener.fd();
  options.server_secret = keys.server_secret;
  options.client_key = keys.worker_public;
  options.control_fd = control[0];
  options.memory = r.memory;
  ps::serve_parameters(options);
  return 0;
}

}  // namespace hetu::cli
