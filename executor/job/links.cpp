#include "executor/job/links.h"

#include "config/env.h"
#include "executor/comm/connect.h"
#include "executor/comm/inproc.h"

namespace hetu {

comm::Options link_options(int number) {
  comm::Options options;
  options.timeout_s = env().timeout_s;
  options.number = number;
  options.progress_fd = env().progress_fd;
  return options;
}

std::unique_ptr<comm::Transport> open_links(int number) {
  const comm::Options options = link_options(number);
  if (env().workers > 1) return comm::connect(env().transport, options);
  return std::move(comm::make_inproc(1, options)[0]);
}

}  // namespace hetu
