// The process's standard streams when it was started without them. Called by the tool's main() and
// by the Python module.
#pragma once

namespace hetu {

/// Takes the numbers of standard streams that are closed, so that no file or socket of this process
/// gets one and receives what is meant for a stream. Their use still fails, as that of a closed
/// stream does.
void reserve_standard_streams();

}  // namespace hetu
