#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hetu {

// Opened the wrong way round: reading standard input and writing the other two gives EBADF.
void reserve_standard_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool is_closed = fcntl(number, F_GETFD) == -1 && errno == EBADF;
    // open() takes the lowest free number, which is this one: those below it are in use by now.
    if (is_closed && open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY) != number)
      return;
  }
}

}  // namespace hetu
