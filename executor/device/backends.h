// What open_device() opens: one function per back end.
#pragma once
#include <memory>

namespace hetu {

class Device;

std::unique_ptr<Device> open_cpu();
std::unique_ptr<Device> open_far();

}  // namespace hetu
